"""Which loader, on the page of the suite: the answer by task, and what each loader does and lacks."""

from __future__ import annotations

from collections.abc import Sequence

from feedrate.analysis.estimate import Estimate
from feedrate.charts.figure import Row
from feedrate.pages.runs import RunView
from feedrate.pages.template import render
from feedrate.questions.loaders.charts import DEFAULT, compared
from feedrate.schema import words
from feedrate.schema.plugins import loader_traits

SUITE = "loaders"


def sections(view: RunView, suite: str) -> tuple[str, str]:
    """Write what a run says of loaders: a line a task and, for below the chart, traits; nothing without two loaders."""
    if not (tasks := compared(view.trials_of(suite))):
        return "", ""
    counts = {_most(rows) for _, rows, _ in tasks} - {None}
    answers = [
        (f"{subset.title}, {subset.subtitle}", _answer(rows, alone=len(counts) > 1)) for subset, rows, _ in tasks
    ]
    used = dict.fromkeys(row["plugin"] for _, rows, _ in tasks for row in rows)
    traits = [
        (trait.title, trait.workers, trait.order, trait.errors, "yes" if trait.resumes else "no", trait.lacks or "–")
        for trait in map(loader_traits, used)
    ]
    return (
        render(
            "loaders/answers.md",
            answers=answers,
            default=DEFAULT,
            workers=counts.pop() if len(counts) == 1 else None,
            loaders=[trait[0] for trait in traits],
        ),
        render("loaders/traits.md", traits=traits, mark=view.mark),
    )


def _most(rows: Sequence[Row]) -> int | None:
    """The most workers with which loaders have a comparison."""
    return max((row["workers"] for row in rows if words.is_number(row["times_lo"])), default=None)


def _answer(rows: Sequence[Row], *, alone: bool) -> str:
    """Which loaders are clearly faster or slower than PyTorch's with as many workers; then those that are neither.

    How many workers these are is said where the page does not say it for all tasks.
    """
    alike = ({row["workers"] for row in rows if row["is_default"] == usual} for usual in (True, False))
    if not set.intersection(*alike):
        return f"{DEFAULT} was not measured with as many workers."
    if (most := _most(rows)) is None:
        return "Too few repetitions to compare."
    names = ("times", "times_lo", "times_hi", "n")
    known = [row for row in rows if words.is_number(row["times_lo"]) and row["workers"] == most]
    busiest = [(row["loader"], Estimate.of_row(row, names, "ratio")) for row in known]
    faster = [f"{loader} {ratio.text()}" for loader, ratio in busiest if ratio.low > 1]
    slower = [f"{loader} {ratio.text()}" for loader, ratio in busiest if ratio.high < 1]
    said = [f"{word}: {words.listed(group)}." for word, group in (("Faster", faster), ("Slower", slower)) if group]
    rest = len(busiest) - len(faster) - len(slower)
    if rest:
        ties = f"All {rest}" if rest == len(busiest) > 1 else f"{rest} of {len(busiest)}"
        said.append(f"{ties} others {'ties' if rest == 1 else 'tie'} with {DEFAULT}.")
    others = dict.fromkeys(row["loader"] for row in rows if not row["is_default"])
    left = [loader for loader in others if loader not in dict(busiest)]
    with_most = f"with {words.plural(most, 'worker')}"
    if alone:
        said.append(f"All {with_most}.")
    ran = {row["loader"] for row in rows if row["workers"] == most}
    for why, names_left in (
        ("Too few repetitions", [loader for loader in left if loader in ran]),
        ("Not measured", [loader for loader in left if loader not in ran]),
    ):
        if names_left:
            said.append(f"{why} {with_most}: {words.listed(names_left)}.")
    return " ".join(said)
