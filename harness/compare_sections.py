"""A comparison of two runs in words and tables: how much faster B is, where, why, and what to choose."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness import compare_facts, report
from harness.analysis.compared import repeated
from harness.analysis.compared_stages import STAGES
from harness.analysis.machines import CELL, Overall
from harness.analysis.rows import rows_of
from harness.charts import _words as words
from harness.comparing import Comparison
from harness.pages import described
from harness.report_claims import COLOURS as CLAIM_COLOURS
from harness.report_claims import bar
from harness.report_parts import Cell, Section, cells

MOST_CELLS = 8
"""Cells that a list shows unless all are asked for."""
_REACHES = (1.25, 2.0, 4.0, 16.0, 64.0, 256.0, 4096.0)
"""Ratios at which bars may end."""
_COLOURS = {"faster": "green", "slower": "red", "no difference": "blue", "inconclusive": "yellow"}
_KINDS = {
    "train": "real training",
    "emulated": "before an emulated step",
    "load": "loading alone",
    "copy": "copying alone",
    "compute": "the step alone",
}
_STAMPED = frozenset(stage.name for stage in STAGES if stage.column)
Row = Mapping[str, Any]


def sections(found: Comparison, *, whole: bool = False) -> list[Section]:
    """Write a comparison.

    Args:
        found: what was compared.
        whole: list every cell, and not the first few alone.
    """
    reach = _reach(found)
    most = None if whole else MOST_CELLS
    return [
        compare_facts.section(found),
        _matched(found, most),
        _overall(found, reach),
        *_ends(found, reach, most),
        *_stages(found, reach),
        *_best(found),
        *_claims(found),
    ]


def headline(over: Overall) -> str:
    """Say in a sentence how many times as fast B is.

    Args:
        over: over all cells.
    """
    interval = f", 95 % interval {words.number(over.lo)} to {words.number(over.hi)}" if words.known(over.lo) else ""
    return (
        f"B is {words.number(over.ratio)} times as fast as A over {words.plural(over.cells, 'cell')} "
        f"(geometric mean{interval})."
    )


def _reach(found: Comparison) -> float:
    """Where bars end: at the first of ``_REACHES`` that holds what is summed up, else at the last."""
    ratios = [found.found.overall.ratio, *found.found.kinds["ratio"], *found.found.stages["ratio"]]
    widest = math.exp(max(abs(math.log(ratio)) for ratio in ratios))
    return next((reach for reach in _REACHES if reach >= widest), _REACHES[-1])


def _estimate(ratio: float, lo: float, hi: float, none: str) -> str:
    """A ratio with its interval, or why it has none."""
    interval = f"{words.number(lo)}–{words.number(hi)}" if words.known(lo) and words.known(hi) else none
    return f"{words.number(ratio)}× ({interval})"


def _drawn(row: Row | Overall, none: str, reach: float, colour: str = "") -> tuple[Cell, Cell]:
    """A ratio with its interval, in numbers and as a bar."""
    ratio, lo, hi = (row.ratio, row.lo, row.hi) if isinstance(row, Overall) else (row["ratio"], row["lo"], row["hi"])
    return Cell(_estimate(ratio, lo, hi, none)), Cell(bar(ratio, lo, hi, reach), colour, bar=True)


def _matched(found: Comparison, most: int | None) -> Section:
    """Which cells are compared, and why the others are not."""
    counts = [len(side.trials[CELL].drop_duplicates()) for side in (found.a, found.b)]
    compared, left = found.found.cells, found.found.unmatched
    line = (
        f"{words.plural(len(compared), 'cell')} of {counts[0]:,} in A and {counts[1]:,} in B: those of the same "
        "settings, device, data, workload and protocol."
    )
    rows = []
    for reason, group in left.groupby("reason", sort=False):
        settings = [described.setting(row) for row in rows_of(group)]
        if most is None:
            rows += [cells(str(reason), "1", setting) for setting in settings]
        else:
            such = "; ".join([*settings[:2], *["…"] * (len(settings) > 2)])
            rows.append(cells(str(reason), f"{len(group):,}", such))
    lines = [line, "Not compared:" if rows else "That is all of them."]
    return Section("What is compared", lines, ("reason", "cells", "such as"), rows)


def _overall(found: Comparison, reach: float) -> Section:
    """One ratio over everything, and by what ran."""
    over, counts = found.found.overall, found.found.cells["verdict"].value_counts()
    told = ", ".join(f"{verdict} in {counts[verdict]}" for verdict in _COLOURS if verdict in counts)
    lines = [
        headline(over),
        "The interval says how much the choice of cells matters, not how well each was measured.",
        f"B against A: {told}. Single 95 % intervals, not corrected for the number of cells.",
        *_cautions(found),
        f"Bars: B ÷ A from {1 / reach:.2g} to {reach:g}, one in the middle, with 95 % intervals.",
    ]
    rows = [(Cell("all"), *_drawn(over, "one cell", reach), *cells(f"{over.cells:,}", ""))]
    for row in rows_of(found.found.kinds):
        tally = ", ".join(f"{row[name]:,}" for name in ("faster", "slower", "same", "open"))
        rows.append((Cell(_KINDS[row["kind"]]), *_drawn(row, "one cell", reach), *cells(f"{row['cells']:,}", tally)))
    columns = ("cells", "B ÷ A (95 %)", "", "n", "faster, slower, same, open")
    return Section("How many times as fast B is", lines, columns, rows)


def _cautions(found: Comparison) -> Iterator[str]:
    """What a reader of the ratios has to know."""
    if found.found.kinds["kind"].eq("emulated").any():
        yield "An emulated step sleeps as long on either machine: where it is the bottleneck the ratio is one."
    if compare_facts.one_machine(found):
        again = repeated(found.found.cells)
        yield (
            f"Half of the cells agree within {again.half_within_pct:.1f} %; {again.hold} of {again.cells} intervals "
            "hold one (95 % of them would, were nothing different between the runs)."
        )


def _ends(found: Comparison, reach: float, most: int | None) -> Iterator[Section]:
    """Where B wins and where it loses, the largest differences first."""
    compared = found.found.cells
    for verdict, ascending in (("faster", False), ("slower", True)):
        title = f"Where B is {verdict}"
        own = compared[compared["verdict"].eq(verdict)].sort_values("ratio", ascending=ascending, kind="stable")
        if not len(own):
            yield Section(title, [f"In no cell is B clearly {verdict}."])
            continue
        shown = own if most is None else own.head(most)
        rows = [
            (
                Cell(f"{report.task(row)}: {report.settings(row)}"),
                Cell(f"{row['samples_per_s_a']:,.0f} → {row['samples_per_s_b']:,.0f}"),
                *_drawn(row, "one block", reach, _COLOURS[verdict]),
                Cell(f"{row['n_a']:.0f}, {row['n_b']:.0f}"),
            )
            for row in rows_of(shown)
        ]
        first = f"; the {len(rows)} largest differences (--all lists every cell):" if len(rows) < len(own) else ":"
        columns = ("cell", "A → B, samples/s", "B ÷ A (95 %)", "", "blocks")
        yield Section(title, [f"In {words.plural(len(own), 'cell')}{first}"], columns, rows)


def _stages(found: Comparison, reach: float) -> Iterator[Section]:
    """What each stage could do alone on either machine, and what holds training back."""
    docs = {stage.name: stage.doc for stage in STAGES}
    stages = rows_of(found.found.stages)
    rows = [
        (
            *cells(docs[row["stage"]], f"{row['a']:,.0f}", f"{row['b']:,.0f}"),
            *_drawn(row, "one block", reach),
            *cells(f"{words.number(row['least'])}–{words.number(row['most'])}", f"{row['cells']:,}"),
        )
        for row in stages
    ]
    lines = ["Each stage alone, in samples/s: geometric means over its cells."] if rows else []
    if _STAMPED & {row["stage"] for row in stages}:
        lines.append("What one process does is told by the stamps of the DataLoader's workers.")
    held = found.found.held
    for (a, b), count in Counter(zip(held["bottleneck_a"], held["bottleneck_b"], strict=True)).most_common():
        both = f"{a} in both" if a == b else f"{a} in A, {b} in B"
        lines.append(f"{words.plural(count, 'training cell')}: {both}.")
    if lines:
        columns = ("stage", "A", "B", "B ÷ A (95 %)", "", "from–to", "cells")
        yield Section("Why: what each stage could do", lines, columns, rows)


def _best(found: Comparison) -> Iterator[Section]:
    """The best settings of either machine, task by task."""
    rows = [row for row in rows_of(found.found.best) if row["mode"] in ("train", "load")]
    if rows:
        known = [
            {str(row["cell_id"]): row for row in rows_of(side.trials.drop_duplicates("cell_id"))}
            for side in (found.a, found.b)
        ]
        rows.sort(key=lambda row: (row["mode"] != "train", row["step"] != "real", str(row["workload"])))
        line = "Of the settings that cannot be told from the fastest the cheapest: fewest workers, then least memory."
        yield Section("Best settings", [line], items=[(report.task(row), _choice(row, known)) for row in rows])


def _choice(row: Row, known: Sequence[Mapping[str, Row]]) -> list[str]:
    """What to choose on either machine, and what the other's choice is worth there."""
    lines = []
    for side, trials in zip("ab", known, strict=True):
        bound = f", {row[f'bottleneck_{side}']}" if row["mode"] == "train" else ""
        setting = report.settings(trials[row[f"cell_{side}"]])
        lines.append(f"{side.upper()}: {setting}: {row[f'samples_per_s_{side}']:,.0f} samples/s{bound}")
    best = f"best against best, B ÷ A is {_estimate(row['ratio'], row['lo'], row['hi'], 'one block')}"
    if row["cell_a"] == row["cell_b"]:
        return [*lines, f"The same setting; {best}"]
    worth = [
        f"{mine}'s setting reaches {row[name]:.0%} of {other}'s on {other}"
        for mine, other, name in (("A", "B", "a_on_b"), ("B", "A", "b_on_a"))
        if words.known(row[name])
    ]
    return [*lines, "; ".join([*worth, best])]


def _claims(found: Comparison) -> Iterator[Section]:
    """Claims whose verdict differs."""
    tested = found.claims
    if not len(tested):
        return
    differ = tested[~tested["agree"].astype(bool)]
    decided = int(differ["decided"].sum())
    line = (
        f"Of {words.plural(len(tested), 'claim')} that both tested, {len(tested) - len(differ)} have the same verdict; "
        f"{decided} differ and are decided on both, {len(differ) - decided} are inconclusive on one."
    )
    rows = [
        (Cell(f"{row['claim']}: {found.asked[row['claim']].says}"), *(_verdict(row, side) for side in "ab"))
        for row in rows_of(differ)
    ]
    yield Section("Claims whose verdict differs", [line], ("claim", "A", "B"), rows)


def _verdict(row: Row, side: str) -> Cell:
    word, ratio = str(row[f"verdict_{side}"]), row[f"ratio_{side}"]
    effect = _estimate(ratio, row[f"lo_{side}"], row[f"hi_{side}"], "one block") if words.known(ratio) else "a fact"
    return Cell(f"{word}: {effect}", CLAIM_COLOURS[word])
