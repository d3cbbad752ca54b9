"""What a forked child does with its job: report facts, prepare data, or run one trial (which a check is, too).

After its answer the child does nothing more: it waits to be killed with its whole group, which takes 2 ms where taking
a DataLoader down takes 100. Until then its workers live, so that the parent can read their memory.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch

from feedrate.schema.redaction import shorten
from feedrate.trial import distributed
from feedrate.trial.bench import run_instrumentation, run_witness_trial
from feedrate.trial.checks import run_check
from feedrate.trial.job import Job, Reporter
from feedrate.trial.prepare import dataset_root, prepare
from feedrate.trial.run import run_trial

BLOCKING = "CUDA_LAUNCH_BLOCKING"
OUT_OF_MEMORY = ("allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")
"""In the messages of bare RuntimeErrors, which PyTorch raises on a CPU."""


def perform(text: str, descriptor: int) -> int:
    """Do a job, given as JSON, and wait to be killed."""
    job = Job.parse(text)
    _set_blocking(job, text, descriptor)
    work = {
        "facts": _report_facts,
        "prepare": _prepare,
        "trial": _run_trial,
        "witness": run_witness_trial,
        "instrumentation": run_instrumentation,
    }
    _answer(work[job.kind], job, Reporter(descriptor))
    return 1


def _answer(work: Callable[[Job, Reporter], None], job: Job, reporter: Reporter) -> None:
    """Do the work, or report why it failed; then live until the group is killed."""
    try:
        work(job, reporter)
    except Exception as error:  # noqa: BLE001 - whatever a trial raises becomes its row
        out = isinstance(error, MemoryError | torch.OutOfMemoryError) or any(s in str(error) for s in OUT_OF_MEMORY)
        outcome = "oom" if out else "error"
        reporter.send("failure", outcome=outcome, kind=type(error).__name__, message=shorten(str(error)))
    signal.pause()


def _set_blocking(job: Job, text: str, descriptor: int) -> None:
    """Have launches wait for their kernels as the cell says, whatever the environment of the sweep says.

    Where they do, this process begins anew as a fresh interpreter: CUDA reads the variable once, when it starts. Its
    process id stays the same, and so it is still the one that the parent watches.
    """
    if not job.value("launch_blocking"):
        os.environ.pop(BLOCKING, None)
    elif os.environ.get(BLOCKING) != "1":
        order = os.memfd_create("job")
        os.write(order, text.encode())
        os.lseek(order, 0, os.SEEK_SET)
        os.dup2(order, 0)
        os.set_inheritable(descriptor, True)
        command = [sys.executable, "-P", "-m", "feedrate.trial.child", str(descriptor)]
        os.execve(sys.executable, command, os.environ | {BLOCKING: "1"})  # noqa: S606 - no shell is wanted


def _run_trial(job: Job, reporter: Reporter) -> None:
    """Run a trial in this process, or in ranks that it starts, in the memory group that is there for it."""
    for entry in job.groups:
        Path(entry).write_text("0", encoding="ascii")
    if job.value("mode") == "check":
        run_check(job, reporter)
    elif job.value("parallel") == "ddp":
        distributed.launch(job, reporter.descriptor, _run_rank)
    else:
        run_trial(job, reporter)


def _run_rank(job: Job, reporter: Reporter) -> None:
    """Run a trial as one of its ranks."""

    def work(job: Job, reporter: Reporter) -> None:
        distributed.join(job)
        run_trial(job, reporter)

    _answer(work, job, reporter)


def _report_facts(_job: Job, reporter: Reporter) -> None:
    available = torch.cuda.is_available()
    reporter.send(
        "result",
        device="cuda" if available else "cpu",
        uuid=str(torch.cuda.get_device_properties(0).uuid) if available else None,
        torch_threads=torch.get_num_threads(),
        cuda=torch.version.cuda if available else None,
        cudnn=torch.backends.cudnn.version() if available else None,  # type: ignore[no-untyped-call]
    )


def _prepare(job: Job, reporter: Reporter) -> None:
    spec, name, data_root = job.data_spec(), job.value("storage_format"), Path(job.data_root)
    manifest = prepare(spec, name, data_root, lambda done, total: reporter.send("progress", done=done, total=total))
    root = dataset_root(data_root, spec, name)
    reporter.send("result", packed=str(root), name=root.parent.name, storage_format=name, **asdict(manifest))


if __name__ == "__main__":  # python -m feedrate.trial.child REPORT_DESCRIPTOR < job
    sys.exit(perform(sys.stdin.read(), int(sys.argv[1])))
