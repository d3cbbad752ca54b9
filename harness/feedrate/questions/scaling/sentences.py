"""What was found of nodes that ran trials together, in sentences that page, chart and terminal share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feedrate.analysis.estimate import Estimate
from feedrate.pages import descriptions
from feedrate.questions.scaling.analysis import Level, Loading, Training
from feedrate.schema import words
from feedrate.schema.metrics import CONFIRMED_OVER, SAME

NOTHING = "No setting ended well with several numbers of nodes."


def titled(cell: Mapping[Any, Any]) -> str:
    """Name what is loaded or trained on: workload and size."""
    return words.sized(cell["workload"], cell["patch_size"])


def doing(cell: Mapping[Any, Any]) -> str:
    """Say what a trial does."""
    if cell["parallel"] == "ddp":
        return f"one training of {cell['model']} (DDP)"
    return "loading alone" if cell["mode"] == "load" else "loading before a training step"


def settings(cell: Mapping[Any, Any]) -> str:
    """Name the settings that a reader asks for."""
    workers = words.plural(int(cell["num_workers"]), "worker")
    return ", ".join([descriptions.fixed(cell), workers, *descriptions.reading(cell)])


def _on(cell: Mapping[Any, Any]) -> str:
    return f"on {titled(cell)} ({doing(cell)}, {settings(cell)})"


def of_loading(load: Loading) -> str:
    """Say how many nodes load at full pace, or whether they slow each other at all."""
    few, many = load.levels[0], load.levels[-1]
    alone = few.nodes == 1
    pace = f"a node alone loads {words.number(few.rate.value)} samples a second" if alone else ""
    kept = f"with {many.nodes} at once each keeps {load.kept.with_n()} of the pace of {'one' if alone else few.nodes}"
    return words.sentence(f"{_on(load.cell)}: {', '.join(filter(None, [pace, kept]))}; {_knee(load)}")


def _knee(load: Loading) -> str:
    if load.knee:
        knee, most = load.knee, load.levels[-1].nodes
        fed = knee.with_n(" nodes", write="{:.1f}".format)
        beyond = "; the upper end may lie beyond those measured" if knee.high >= most else ""
        return f"up to {fed} load at full pace; more share what there is{beyond}"
    if load.kept.low > CONFIRMED_OVER:
        return "together they are faster"
    if load.kept.low > SAME[0]:
        return "they do not slow each other: what they share is not full"
    return "too few repetitions to tell whether that is a fall"


def of_training(training: Training) -> str:
    """Say what training in the most processes reaches, and what of it the exchange of gradients takes."""
    most = training.levels[-1]
    parts = [f"{words.number(most.rate.value)} samples a second in {placed(most)}"]
    if most.efficiency:
        parts.append(f"an efficiency of {most.efficiency.with_n()} against {placed(training.levels[0])}")
    if most.exchange:
        parts.append(_exchange(most.exchange))
    return words.sentence(f"{_on(training.cell)}: {'; '.join(parts)}")


def _exchange(share: Estimate) -> str:
    if share.value <= 0 or share.low <= 0:
        interval = words.interval(share.low, share.high, share.n, words.percent)
        return f"exchanging gradients takes no time that was measured ({interval})"
    return f"exchanging gradients takes {share.with_n()} of the time"


def placed(level: Level) -> str:
    """Name the processes of a training and where they run."""
    where = f" on {words.plural(level.nodes, 'node')}" if level.nodes > 1 else " on one node"
    return f"{level.processes} {'process' if level.processes == 1 else 'processes'}{where}"
