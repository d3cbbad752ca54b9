"""Two clocks of one step on a GPU: what CUDA events say of each phase against a host that waits for the device."""

from __future__ import annotations

from html import escape

from harness.analysis.rows import rows_of
from harness.analysis.timing import cross_check, hidden
from harness.charts import _words as words
from harness.pages import described, markup
from harness.pages.gathered import Shown


def section(shown: Shown) -> str:
    """Write the cross-check; nothing where no cell ran with both clocks."""
    checked = cross_check(shown.trials)
    if checked.empty:
        return ""
    settings = {row["cell_id"]: described.setting(row) for row in rows_of(shown.cells)}
    rows = [
        (
            escape(settings[row["cell_events"]]),
            escape(row["phase"]),
            f"{row['ratio']:.2f}",
            described.spread(row["lo"], row["hi"]),
            str(row["n"]),
        )
        for row in rows_of(checked)
    ]
    table = markup.table(
        "Device span by events ÷ phase of a host that waits",
        ("Setting", "Phase", "Ratio", "95 % interval", "n"),
        rows,
        ("Ratio", "95 % interval", "n"),
        stack=True,
    )
    shares = [
        f"{settings[row['cell_events']]}: {words.percent(row['hidden'])}"
        for row in rows_of(hidden(shown.trials))
        if words.known(row["hidden"])
    ]
    said = (
        "A ratio near 1 says that both clocks see the same work; launching makes it smaller, waiting in a queue larger."
    )
    if shares:
        said += f" What overlap hides of a step in which nothing overlaps: {'; '.join(shares)}."
    return markup.paragraph(said) + table
