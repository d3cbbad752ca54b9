"""Why one of two runs is faster, in words and tables: its stages, what holds training back, and what to choose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from harness import report
from harness.analysis.compared_stages import CEILINGS, STAGES
from harness.analysis.rows import rows_of
from harness.charts import _words as words
from harness.compare_words import KINDS, Row, drawn, estimate
from harness.comparing import Comparison
from harness.report_parts import Section, cells

_STAMPED = frozenset(stage.name for stage in STAGES if stage.column)


def stages(found: Comparison, reach: float) -> Iterator[Section]:
    """Write what each stage could do alone on either machine, where both ran one alone.

    Args:
        found: what was compared.
        reach: the ratio at which bars end.
    """
    docs = {stage.name: stage.doc for stage in STAGES}
    rows = [
        (
            *cells(docs[row["stage"]], f"{row['a']:,.0f}", f"{row['b']:,.0f}"),
            *drawn(row, "one block", reach),
            *cells(*_spread_of(row)),
        )
        for row in rows_of(found.found.stages)
    ]
    if rows:
        lines = ["Each stage alone, in samples/s: geometric means over its cells."]
        if found.found.stages["stage"].isin(_STAMPED).any():
            lines.append("What one process does is told by the stamps of the DataLoader's workers.")
        columns = ("stage", "A", "B", "B ÷ A (95 %)", "", "from–to", "n")
        yield Section("Why: what each stage could do", lines, columns, rows)


def _spread_of(row: Row) -> tuple[str, str]:
    """From where to where the ratios of a stage's cells reach, and how many they are; of a single one its blocks."""
    if row["cells"] == 1:
        return "one cell", f"{row['n_a']:.0f}, {row['n_b']:.0f} blocks"
    return f"{words.number(row['least'])}–{words.number(row['most'])}", f"{row['cells']:,} cells"


def held(found: Comparison) -> Iterator[Section]:
    """Write what holds training back on either machine, with the ceilings that say so.

    Args:
        found: what was compared.
    """
    groups = sorted(found.found.held.groupby(["bottleneck_a", "bottleneck_b"]), key=lambda pair: -len(pair[1]))
    items = []
    for (a, b), group in groups:
        both = f"{a} in both" if a == b else f"{a} in A, {b} in B"
        items.append((f"{words.plural(len(group), 'training cell')}: {both}.", list(_ceilings(group))))
    if items:
        line = (
            "A training cell is held back by its smallest ceiling, what a stage does alone; where ceilings were not "
            "measured, by the phase that takes half of the time. In samples/s: geometric means over cells, with the "
            "least and the most; an emulated step's is declared."
        )
        yield Section("Why: what holds training back", [line], items=items)


def _ceilings(held: pd.DataFrame) -> Iterator[str]:
    """The ceilings of cells that the same holds back, as far as both sides have them."""
    for name in CEILINGS:
        known = held[[f"{name}_a", f"{name}_b"]].astype("float64").dropna()
        if len(known):
            of = f", known of {len(known)} of them" if len(known) < len(held) else ""
            told = (f"{_mean(known[column])} in {side}" for side, column in zip("AB", known, strict=True))
            yield f"{KINDS[name.removesuffix('_ceiling')]}: {', '.join(told)}{of}"


def _mean(rates: pd.Series[float]) -> str:
    """Rates as their geometric mean, with the least and the most where they are several."""
    least, mean, most = (words.number(each) for each in (rates.min(), np.exp(np.log(rates).mean()), rates.max()))
    return mean if least == most else f"{mean} ({least}–{most})"


def best(found: Comparison) -> Iterator[Section]:
    """Write the best settings of either machine, task by task.

    Args:
        found: what was compared.
    """
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
        rate = report.rate(*(row[f"{name}_{side}"] for name in ("samples_per_s", "lo", "hi", "n")))
        lines.append(f"{side.upper()}: {setting}: {rate}{bound}")
    blocks = f"{row['n_a']} and {row['n_b']} blocks"
    best = f"best against best, B ÷ A is {estimate(row['ratio'], row['lo'], row['hi'], 'no interval', blocks)}"
    if row["cell_a"] == row["cell_b"]:
        return [*lines, f"The same setting; {best}"]
    worth = [
        f"{mine}'s setting reaches {_share(row, name)} of {other}'s on {other}"
        for mine, other, name in (("A", "B", "a_on_b"), ("B", "A", "b_on_a"))
        if words.known(row[name])
    ]
    return [*lines, "; ".join([*worth, best])]


def _share(row: Row, name: str) -> str:
    """What a setting reaches of another, in per cent, with its interval and blocks."""
    ends = [100 * row[f"{name}_{end}"] for end in ("lo", "hi")]
    interval = f"{words.number(ends[0])}–{words.number(ends[1])} %" if words.known(ends[0]) else "no interval"
    return f"{100 * row[name]:.0f} % ({interval}, {words.plural(int(row[f'{name}_n']), 'block')})"
