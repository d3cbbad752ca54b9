"""A comparison of two runs in words and tables: how much faster B is, where, why, and what to choose."""

from __future__ import annotations

import math
from collections.abc import Iterator

from harness import compare_facts, compare_why, report
from harness.analysis.compared import COUNTED, repeated
from harness.analysis.compared_stages import ENDS
from harness.analysis.machines import CELL, Overall
from harness.analysis.rows import rows_of
from harness.charts import _words as words
from harness.claim import Claim
from harness.compare_words import KINDS, Row, drawn, estimate
from harness.comparing import Comparison
from harness.pages import described
from harness.report_claims import COLOURS as CLAIM_COLOURS
from harness.report_parts import Cell, Section, cells

MOST_CELLS = 8
"""Cells that a list shows unless all are asked for."""
_REACHES = (1.25, 2.0, 4.0, 16.0, 64.0, 256.0, 4096.0)
"""Ratios at which bars may end."""
_COLOURS = {"faster": "green", "slower": "red", "no difference": "blue", "inconclusive": "yellow"}


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
        *compare_why.stages(found, reach),
        *compare_why.held(found),
        *compare_why.best(found),
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
    over, kinds = found.found.overall, rows_of(found.found.kinds)
    lines = [
        headline(over),
        "Whether B is faster is decided in each cell by a single 95 % interval, not corrected for their number.",
        *_cautions(found),
    ]
    whole = {name: sum(row[name] for row in kinds) for name in COUNTED}
    rows = [(Cell("all"), *drawn(over, "one cell", reach), *cells(f"{over.cells:,}", _tally(whole)))]
    rows += [
        (Cell(KINDS[row["kind"]]), *drawn(row, "one cell", reach), *cells(f"{row['cells']:,}", _tally(row)))
        for row in kinds
    ]
    bars = (
        f"Bars here and below: B ÷ A from {1 / reach:.2g} to {reach:g}, one in the middle, with 95 % intervals; an "
        "arrow where the ratio lies beyond."
    )
    columns = ("what ran", "B ÷ A (95 %)", "", "cells", "of these")
    return Section("How many times as fast B is", lines, columns, rows, bars=bars)


def _tally(counts: Row) -> str:
    """How many cells have which verdict."""
    return ", ".join(f"{counts[name]:,} {verdict}" for name, verdict in COUNTED.items() if counts[name])


def _cautions(found: Comparison) -> Iterator[str]:
    """What a reader of the ratios has to know."""
    several = found.found.overall.cells > 1
    if several:
        yield "The interval over cells says how much the choice of cells matters, not how well each was measured."
    else:
        [row] = rows_of(found.found.cells)
        told = estimate(row["ratio"], row["lo"], row["hi"], "no interval", f"{row['n_a']} and {row['n_b']} blocks")
        yield f"This one cell: {told}."
    if found.found.kinds["kind"].eq("emulated").any():
        yield "An emulated step sleeps as long on either machine: where it is the bottleneck the ratio is one."
    if compare_facts.one_machine(found):
        again = repeated(found.found.cells)
        if several:
            yield f"Half of the cells agree within {again.half_within_pct:.1f} %."
        if again.cells:
            yield (
                f"A ratio of one lies in {again.hold} of {words.plural(again.cells, 'interval')}; in 95 % of them it "
                "would, were nothing different between the runs."
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
                *drawn(row, "one block", reach, _COLOURS[verdict]),
                Cell(f"{row['n_a']:.0f}, {row['n_b']:.0f}"),
            )
            for row in rows_of(shown)
        ]
        first = f"; the {len(rows)} largest differences (--all lists every cell):" if len(rows) < len(own) else ":"
        columns = ("cell", "A → B, samples/s", "B ÷ A (95 %)", "", "blocks")
        yield Section(title, [f"In {words.plural(len(own), 'cell')}{first}"], columns, rows)


def _claims(found: Comparison) -> Iterator[Section]:
    """Claims whose verdict differs."""
    tested = found.claims
    if not len(tested):
        return
    differ = tested[~tested["agree"].astype(bool)]
    decided = int(differ["decided"].sum())
    line = (
        f"Of {words.plural(len(tested), 'claim')} that both tested, {len(tested) - len(differ)} have the same verdict"
    )
    if len(differ):
        line += f"; {decided} differ and are decided on both, {len(differ) - decided} are inconclusive on one"
    rows = [
        (Cell(f"{row['claim']}: {asked.says}"), *(_verdict(row, side, asked) for side in "ab"))
        for row in rows_of(differ)
        for asked in [found.asked[row["claim"]]]
    ]
    yield Section("Claims whose verdict differs", [f"{line}."], ("claim", "A", "B"), rows)


def _verdict(row: Row, side: str, claim: Claim) -> Cell:
    """A verdict with what it rests on: an effect, or for a fact the trials that looked."""
    word, ratio, lo, hi, n = (row[f"{name}_{side}"] for name in ("verdict", *ENDS, "n"))
    if claim.effect is None:
        told = f"a fact, {words.plural(int(n), 'trial')}"
    else:
        blocks = words.plural(int(n), "block")
        told = estimate(ratio, lo, hi, "no interval", blocks) if words.known(ratio) else "no block of all its cells"
    return Cell(f"{word}: {told}", CLAIM_COLOURS[word])
