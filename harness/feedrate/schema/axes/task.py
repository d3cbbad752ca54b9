"""Axes of the task: what is trained on, and what a trial does."""

from __future__ import annotations

from feedrate.schema.axes._axis import Axis, needs_model, one_of, only
from feedrate.schema.plugins import names

TASK: tuple[Axis, ...] = (
    Axis(
        "workload",
        str,
        "synthetic",
        "What is trained on: dataset, transform and model step.",
        choices=lambda: names("feedrate.workloads"),
    ),
    Axis(
        "mode",
        str,
        "train",
        "What a trial does: the whole training step, one stage alone (its ceiling), or a check of a fact, which times "
        "nothing.",
        choices=one_of("train", "load", "compute", "copy", "check"),
    ),
    Axis(
        "check",
        str,
        "next_epoch",
        "Which fact a check looks at.",
        choices=lambda: names("feedrate.trial.checks"),
        idle=only("mode", "check"),
    ),
    Axis(
        "ends_by",
        str,
        "return",
        "How the training process of the check `termination` ends.",
        choices=one_of("return", "exception", "sigint", "sigterm", "sigkill"),
        idle=only("check", "termination"),
    ),
    Axis(
        "guarded",
        bool,
        True,
        "Whether the check's processes guard against being left behind, as all of feedrate's do: workers die with "
        "their parent, SIGTERM ends the training process in order.",
        idle=only("check", "termination"),
    ),
    Axis(
        "step",
        str,
        "real",
        "The model's step: computed, or emulated by sleeping for step_ms.",
        choices=one_of("real", "emulated"),
        idle=only("mode", "train"),
    ),
    Axis(
        "step_ms",
        float,
        10.0,
        "How long an emulated step sleeps, whatever the batch size.",
        unit="ms",
        least=0.0,
        idle=only("step", "emulated"),
    ),
    Axis(
        "model",
        str,
        "srcnn",
        "The network that is trained.",
        choices=lambda: names("feedrate.workloads.models"),
        idle=needs_model,
    ),
)
