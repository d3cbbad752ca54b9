"""Two machines, or two runs of one, compared in words and tables: on the terminal, and as Markdown for a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from feedrate.analysis.estimate import RATE, Estimate
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.machines import CELL
from feedrate.pages import descriptions, report
from feedrate.pages.report import Section
from feedrate.pages.tasks import task_words
from feedrate.plan.claim import Claim
from feedrate.questions.compare.analysis import CAUTIONS, COUNTED, OVERALL, STAGES, repeated
from feedrate.questions.compare.comparison import Comparison, Side
from feedrate.questions.explore.run_files import RAN
from feedrate.questions.machines import page as machines_page
from feedrate.schema.metrics import SAME
from feedrate.schema.words import estimate, is_number, per_cent, percent, plural

MOST_CELLS = 8
"""Cells that a list shows unless all are asked for."""
Row = Mapping[str, Any]


def show(comparison: Comparison, console: Console, *, whole: bool = False) -> None:
    """Print a comparison; ``whole`` lists every cell."""
    report.show(_sections(comparison, whole), console)


def markdown(comparison: Comparison, *, whole: bool = False) -> str:
    """Write a comparison as Markdown; ``whole`` lists every cell."""
    a, b = (side.manifest.machine.machine_id for side in (comparison.a, comparison.b))
    title = f"{b} against {a}" if a != b else f"Two runs of {a}"
    return report.markdown(f"feedrate: {title}", _sections(comparison, whole))


def _sections(comparison: Comparison, whole: bool) -> list[Section]:
    return [
        facts(comparison),
        _matched(comparison, whole),
        _overall(comparison),
        *_wins_and_losses(comparison, None if whole else MOST_CELLS),
        *_stages(comparison),
        *_held_back(comparison),
        *_best_settings(comparison),
        *_claims(comparison),
    ]


def _estimate(row: Row, n: int | str | None = None) -> str:
    return estimate((row["ratio"], row["lo"], row["hi"]), "ratio", n=n)


def _facts(side: Side) -> dict[str, str]:
    """A machine and its run, by what a reader calls each fact."""
    run = side.manifest
    trials, failed = sum(run.outcomes.values()), sum(run.outcomes.values()) - run.outcomes.get("ok", 0)
    measured = f"{trials:,} of {plural(run.cells, 'setting')}, {failed:,} failed"
    return {
        "Machine": run.machine.machine_id,
        **machines_page.hardware(run.machine),
        "Device": run.device,
        "PyTorch": run.software.torch or "unknown",
        "feedrate": run.feedrate_version,
        "Run": run.run_id,
        "Measured": descriptions.day(run.started_at),
        "Command": run.command,
        "Measurements": measured,
        "Grade (A to D)": side.grade,
        "Tier": side.beside.tier,
    }


def facts(comparison: Comparison) -> Section:
    """Write both machines beside each other, and where they differ."""
    b = _facts(comparison.b)
    rows = [(name, one, b[name], "" if one == b[name] else "differs") for name, one in _facts(comparison.a).items()]
    lines = [*comparison.notes, *_settings(comparison)]
    if _repeats(comparison):
        lines.append("These are two runs of one machine: their difference shows how well a run repeats.")
    sides = [{**side.manifest.software.model_dump(), **side.manifest.runtime} for side in (comparison.a, comparison.b)]
    versions = [(name, *(value_text(of.get(name)) for of in sides)) for name in sides[0] | sides[1]]
    differ = [f"{name} {in_a} in A, {in_b} in B" for name, in_a, in_b in versions if in_a != in_b]
    if differ:
        lines.append(f"Versions differ too, which is in every ratio: {'; '.join(differ)}.")
    return Section("A and B", lines, ("", "A", "B", ""), rows)


def _repeats(comparison: Comparison) -> bool:
    """Whether the same was measured twice: on one machine, and of a script with the same settings."""
    a, b = (side.manifest.machine.machine_id for side in (comparison.a, comparison.b))
    return a == b and not comparison.found.changed


def _settings(comparison: Comparison) -> Iterator[str]:
    """How the settings of a script differ, and how long it waits with either."""
    if comparison.found.changed is None:
        return
    differ = [f"{name} {value_text(a)} → {value_text(b)}" for name, a, b in comparison.found.changed]
    yield f"A → B: {', '.join(differ)}." if differ else "The script's loader has the same settings in both."
    loops = (side.trials[side.trials["mode"].eq("train")] for side in (comparison.a, comparison.b))
    a, b = (percent(loop["host_fetch_ns"].sum() / loop["wall_ns"].sum()) for loop in loops)
    yield f"It waits for data {a} of the time in A and {b} in B."


def value_text(value: object) -> str:
    """Write the value of an axis or a version; none where there is none."""
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _matched(comparison: Comparison, whole: bool) -> Section:
    """Which cells are compared, and why the others are not."""
    counts = [len(side.trials[CELL].drop_duplicates()) for side in (comparison.a, comparison.b)]
    same = "script, device and protocol, whatever its loader's settings"
    line = (
        f"{plural(len(comparison.found.cells), 'setting')} of {counts[0]:,} in A and {counts[1]:,} in B: those of the "
        f"same {'settings, device, data, workload and protocol' if comparison.found.changed is None else same}."
    )
    rows = []
    for reason, group in comparison.found.unmatched.groupby("reason", sort=False):
        shown = group if whole else group.head(2)
        examples = [*map(descriptions.setting, rows_of(shown)), *["…"] * (len(group) > len(shown))]
        rows.append((str(reason), f"{len(group):,}", "; ".join(examples)))
    lines = [line, "Not compared:" if rows else "That is all of them."]
    return Section("What is compared", lines, ("reason", "settings", "such as"), rows)


def _overall(comparison: Comparison) -> Section:
    """One ratio over everything, and by what ran."""
    overall, kinds = comparison.found.overall, rows_of(comparison.found.kinds)
    lines = [
        f"B is {overall.text()} as fast as A: the geometric mean over {plural(overall.n, 'setting')}.",
        "In brackets: 95 % intervals, not corrected for multiple tests.",
        *_cautions(comparison),
    ]
    every = {name: sum(row[name] for row in kinds) for name in COUNTED} | overall.row(OVERALL)
    rows = [
        (title, _estimate(row), f"{row['cells']:,}", _tally(row))
        for title, row in [("all", every), *((RAN[row["kind"]], row) for row in kinds)]
    ]
    return Section("How many times as fast B is", lines, ("what ran", "B ÷ A (95 %)", "settings", "of these"), rows)


def _tally(counts: Row) -> str:
    return ", ".join(f"{counts[name]:,} {verdict}" for name, verdict in COUNTED.items() if counts[name])


def _cautions(comparison: Comparison) -> Iterator[str]:
    """What a reader of the ratios has to know."""
    several = comparison.found.overall.n > 1
    if several:
        yield CAUTIONS["spread"]
    else:
        [row] = rows_of(comparison.found.cells)
        yield f"This one setting: {_estimate(row, _blocks(row))}."
    if comparison.found.kinds["kind"].eq("emulated").any():
        yield CAUTIONS["emulated"]
    if _repeats(comparison):
        again = repeated(comparison.found.cells)
        if several:
            yield f"Settings differ by {per_cent(again.half_within_pct, 1)} (median)."
        if again.half_within_pct > 100 * (SAME[1] - 1):
            yield CAUTIONS["apart"]
        if again.cells:
            yield f"{again.hold} of {plural(again.cells, 'interval')} include 1; of equal runs 95 % would."


def _wins_and_losses(comparison: Comparison, most: int | None) -> Iterator[Section]:
    """Where B is faster and where it is slower, the largest differences first."""
    compared = comparison.found.cells
    for verdict, ascending in (("faster", False), ("slower", True)):
        title = f"Where B is {verdict}"
        clear = compared[compared["verdict"].eq(verdict)].sort_values("ratio", ascending=ascending, kind="stable")
        if not len(clear):
            yield Section(title, [f"In no setting is B clearly {verdict}."])
            continue
        rows = [
            (
                task_words(row) if comparison.found.changed else f"{task_words(row)}: {descriptions.knobs(row)}",
                f"{row['samples_per_s_a']:,.0f} → {row['samples_per_s_b']:,.0f}",
                _estimate(row),
                _blocks(row),
            )
            for row in rows_of(clear.head(most or len(clear)))
        ]
        first = f"; the {len(rows)} largest differences (--all lists every setting):" if len(rows) < len(clear) else ":"
        columns = ("setting", "A → B, samples/s", "B ÷ A (95 %)", "repetitions")
        yield Section(title, [f"In {plural(len(clear), 'setting')}{first}"], columns, rows)


def _stages(comparison: Comparison) -> Iterator[Section]:
    """What each stage could do alone on either machine, where both ran one alone."""
    stages = {stage.name: stage for stage in STAGES}
    rows = []
    for row in rows_of(comparison.found.stages):
        basis = f"{row['cells']:,} settings" if row["cells"] > 1 else f"{_blocks(row)} repetitions"
        rows.append((stages[row["stage"]].doc, f"{row['a']:,.0f}", f"{row['b']:,.0f}", _estimate(row), basis))
    if rows:
        lines = ["Each stage alone, in samples/s: geometric means over its settings."]
        if any(stages[name].column for name in comparison.found.stages["stage"]):
            lines.append("Stamps of the DataLoader's workers tell what one process does.")
        yield Section("Why: what each stage could do", lines, ("stage", "A", "B", "B ÷ A (95 %)", "n"), rows)


def _held_back(comparison: Comparison) -> Iterator[Section]:
    """What holds training back on either machine."""
    lines = []
    for row in rows_of(comparison.found.held):
        a, b = row["bottleneck_a"], row["bottleneck_b"]
        both = f"{a} in both" if a == b else f"{a} in A, {b} in B"
        lines.append(f"{plural(row['cells'], 'training setting')}: {both}.")
    if lines:
        line = (
            "The bottleneck of a training setting is its smallest limit: what a stage does alone. Without limits it is "
            "the phase that takes half of the time."
        )
        yield Section("Why: what holds training back", [line, *lines])


def _best_settings(comparison: Comparison) -> Iterator[Section]:
    """The best settings of either machine, task by task."""
    rows = [row for row in rows_of(comparison.found.best) if row["mode"] in ("train", "load")]
    if rows:
        by_id = [
            {str(row["cell_id"]): row for row in rows_of(side.trials.drop_duplicates("cell_id"))}
            for side in (comparison.a, comparison.b)
        ]
        rows.sort(key=lambda row: (row["mode"] != "train", row["step"] != "real", str(row["workload"])))
        line = "The cheapest setting that ties with the fastest: fewest workers, then least memory."
        yield Section("Best settings", [line], items=[(task_words(row), _choice(row, by_id)) for row in rows])


def _choice(row: Row, by_id: Sequence[Mapping[str, Row]]) -> list[str]:
    """What to choose on either machine, and what the other's choice is worth there."""
    lines = []
    for side, trials in zip("ab", by_id, strict=True):
        bound = f", {row[f'bottleneck_{side}']}" if row["mode"] == "train" else ""
        rate = Estimate.of_row(row, [f"{name}_{side}" for name in RATE])
        reached = rate.with_n(" samples/s")
        lines.append(f"{side.upper()}: {descriptions.knobs(trials[row[f'cell_{side}']])}: {reached}{bound}")
    best = f"best against best, B ÷ A is {_estimate(row, _blocks(row))}"
    if row["cell_a"] == row["cell_b"]:
        return [*lines, f"The same setting; {best}"]
    worth = []
    for mine, other, name in (("A", "B", "a_on_b"), ("B", "A", "b_on_a")):
        if is_number(row[name]):
            share = Estimate.of_row(row, [f"{name}{end}" for end in ("", "_lo", "_hi", "_n")], "share")
            worth.append(f"{mine}'s setting reaches {share.with_n()} of {other}'s on {other}")
    return [*lines, "; ".join([*worth, best])]


def _blocks(row: Row) -> str:
    return f"{row['n_a']:.0f} and {row['n_b']:.0f}"


def _claims(comparison: Comparison) -> Iterator[Section]:
    """Claims whose verdict differs."""
    tested = comparison.verdicts
    if not len(tested):
        return
    differ = tested[~tested["agree"]]
    line = f"Both tested {plural(len(tested), 'claim')}, {len(tested) - len(differ)} with the same verdict"
    rows = []
    for row in rows_of(differ):
        _, claim = comparison.claims[row["claim"]]
        rows.append((f"{row['claim']}: {claim.says}", *(verdict(row, side, claim) for side in "ab")))
    yield Section("Claims whose verdict differs", [f"{line}."], ("claim", "A", "B"), rows)


def verdict(row: Row, side: str, claim: Claim) -> str:
    """Write a side's verdict with what it rests on: an effect, or for a fact the trials that looked."""
    of_side = {name.removesuffix(f"_{side}"): value for name, value in row.items()}
    if claim.effect is None:
        basis = f"a fact, {plural(int(of_side['n']), 'measurement')}"
    elif is_number(of_side["ratio"]):
        basis = _estimate(of_side, int(of_side["n"]))
    else:
        basis = "no repetition of all its settings"
    return f"{of_side['verdict']}: {basis}"
