"""What was found of a cluster's nodes, in sentences that page and terminal share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from feedrate.analysis.estimate import RATIO, Estimate
from feedrate.analysis.estimates import rows_of
from feedrate.questions.nodes.analysis import ALL, LEAST_NODES, STAMPED, NodeFindings, Spread
from feedrate.schema import words

Naming = Callable[[int], str]
PARTS = {
    ALL: "all settings",
    "load": "loading alone",
    "copy": "copying alone",
    "compute": "the model’s step alone",
    "disk": "reading, page cache cold",
    "cached": "reading, page cache warm",
    "decode": "decoding",
    "transform": "transforming",
    "collate": "collating",
}
"""Part to what it is called."""


def percent(share: float) -> str:
    """Write a small share as per cent, with a decimal: ``5.1 %``."""
    return words.per_cent(100 * share, 1)


def numbered(node: int) -> str:
    """Call a node by its number, as all that is published does."""
    return f"node {node}"


def distance(row: Mapping[str, Any]) -> str:
    """Write how far a node is off: ``5.1 % slower (3.9–6.2 %)``."""
    size, word = Estimate.of_row(row, RATIO).through(lambda ratio: 100 * (ratio - 1), "change"), " faster"
    if size.value < 0:
        size, word = size.through(lambda pct: -pct, "change"), " slower"
    return size.text(word, write=partial(words.per_cent, places=1))


def answer(nodes: NodeFindings, naming: Naming = numbered) -> str:
    """Answer in a sentence whether the nodes are alike."""
    if len(nodes.nodes) < LEAST_NODES:
        return (
            f"{words.plural(len(nodes.nodes), 'node')} measured something, and {LEAST_NODES} are needed: of two that "
            "differ nobody can say which one is off."
        )
    if nodes.spread is None:
        return "No setting but emulated steps ended well in two repetitions of every node."
    off = nodes.outlying
    if not off:
        return (
            f"No node stands out: none of {len(nodes.nodes)} is shown to be more than 1\u00a0% slower or faster than "
            f"the others, over {words.plural(nodes.cells, 'setting')} or in a stage alone."
        )
    who = "; ".join(f"{naming(node)} is {_off(rows_of(rows))}" for node, rows in off.items())
    return words.sentence(f"{len(off)} of {len(nodes.nodes)} nodes {'stand' if len(off) > 1 else 'stands'} out: {who}")


def _off(rows: Sequence[Mapping[str, Any]]) -> str:
    """How far a node is off in all cells, else in the first stage, and in which stages it is, too."""
    stages = words.listed(PARTS[row["part"]] for row in rows[1:])
    return f"{distance(rows[0])} in {PARTS[rows[0]['part']]}" + (f", and off in {stages}" if stages else "")


def reasons(findings: NodeFindings, naming: Naming = numbered) -> Iterator[tuple[str, list[str]]]:
    """Tell of each outlying node in which parts it is off; the workers' stamps come last."""
    of_stamps = {stage.name for stage in STAMPED}
    for node, rows in findings.outlying.items():
        lines = [f"{PARTS[row['part']]}: {distance(row)}" for row in rows_of(rows)]
        if set(rows["part"]) == {ALL}:
            lines.append("no stage by itself is shown to be the reason")
        elif "load" in set(rows["part"]) and not of_stamps & set(rows["part"]):
            lines.append("the workers’ stamps do not show which stage of loading it is")
        yield words.capital(naming(node)), [words.sentence(line) for line in lines]


def variation(nodes: NodeFindings) -> str:
    """Tell how much nodes differ, how much one differs from block to block, and what the sweep could find."""
    if nodes.spread is None:
        return ""
    rest = f", {_between(nodes.rest)} without the outlying ones" if nodes.rest else ""
    return (
        f"Throughput varies by {_between(nodes.spread)} between nodes{rest}, and by {percent(nodes.spread.within)} "
        f"from repetition to repetition within one. A node that is {percent(nodes.finds)} slower in all settings "
        "would be found in 95 of 100 such sweeps."
    )


def _between(spread: Spread) -> str:
    return words.estimate((spread.between, spread.lo, spread.hi), write=percent)


def absent(findings: NodeFindings, nodes: Iterable[int], naming: Naming = numbered) -> str:
    """Name the nodes with a run in which nothing can be compared."""
    gone = [naming(node) for node in nodes if node not in findings.nodes]
    return words.sentence(f"{words.listed(gone)} measured nothing that ended well") if gone else ""
