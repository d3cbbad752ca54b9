"""What a forked child does with its job: report facts, prepare data, or run one trial (which a check is, too).

After its answer the child does nothing more: it waits to be killed with its whole group, which takes 2 ms where taking
a DataLoader down takes 100. Until then its workers live, so that the parent can read their memory.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import torch

from feedrate.trial import distributed
from feedrate.trial.checks import run_check
from feedrate.trial.instrumentation import run_instrumentation
from feedrate.trial.job import Job, Reporter
from feedrate.trial.prepare import dataset_root, prepare
from feedrate.trial.run import run_trial
from feedrate.trial.witnessed import run_witnessed

BLOCKING = "CUDA_LAUNCH_BLOCKING"
Work = Callable[[Job, Reporter], None]


def perform(text: str, descriptor: int) -> int:
    """Do a job and wait to be killed."""
    job = Job.from_json(text)
    _set_blocking(job, text, descriptor)
    work: dict[str, Work] = {
        "facts": _facts,
        "prepare": _prepare,
        "trial": _trial,
        "witness": run_witnessed,
        "instrumentation": run_instrumentation,
    }
    _answer(work[job.kind], job, Reporter(descriptor))
    return 1


def _answer(work: Work, job: Job, reporter: Reporter) -> None:
    """Work, or say why not; then live until the group is killed."""
    try:
        work(job, reporter)
    except Exception as error:  # noqa: BLE001 - whatever a trial raises becomes its row
        reporter.send("failure", outcome=outcome_of(error), kind=type(error).__name__, message=str(error))
    signal.pause()


def _set_blocking(job: Job, text: str, descriptor: int) -> None:
    """Have launches wait for their kernels as the cell says, whatever the environment of the sweep says.

    Where they do, this process begins anew as a fresh interpreter: CUDA reads the variable once, when it starts. Its
    number stays the same, and so it is still the one that the parent watches.
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


def _trial(job: Job, reporter: Reporter) -> None:
    """Run a trial in this process, or in ranks that it starts."""
    if job.value("mode") == "check":
        run_check(job, reporter)
    elif job.value("parallel") == "ddp":
        distributed.launch(job, reporter.descriptor, _rank)
    else:
        run_trial(job, reporter)


def _rank(job: Job, reporter: Reporter) -> None:
    """Run a trial as one of its ranks."""
    _answer(_member, job, reporter)


def _member(job: Job, reporter: Reporter) -> None:
    distributed.join(job)
    run_trial(job, reporter)


def main() -> None:
    """Do a job in a fresh interpreter: ``python -m feedrate.trial.child REPORT_DESCRIPTOR < job``."""
    sys.exit(perform(sys.stdin.read(), int(sys.argv[1])))


def outcome_of(error: Exception) -> str:
    """Tell running out of memory from other failures; on a CPU, PyTorch raises a bare RuntimeError for it."""
    words = ("can't allocate memory", "not enough memory", "Cannot allocate memory", "out of memory", "ALLOC_FAILED")
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return "oom" if known or any(word in str(error) for word in words) else "error"


def _facts(_job: Job, reporter: Reporter) -> None:
    available = torch.cuda.is_available()
    reporter.send(
        "result",
        device="cuda" if available else "cpu",
        torch_threads=torch.get_num_threads(),
        cuda=torch.version.cuda if available else None,
        cudnn=torch.backends.cudnn.version() if available else None,  # type: ignore[no-untyped-call]
    )


def _prepare(job: Job, reporter: Reporter) -> None:
    spec, name = job.data_spec(), job.value("storage_format")
    manifest = prepare(
        spec, name, job.data_folder(), lambda done, total: reporter.send("progress", done=done, total=total)
    )
    root = dataset_root(job.data_folder(), spec, name)
    reporter.send(
        "result",
        packed=str(root),
        name=root.parent.name,
        storage_format=name,
        count=manifest.count,
        bytes=manifest.bytes,
        data_hash=manifest.data_hash,
        workload_version=manifest.workload_version,
        pack_s=manifest.pack_s,
        notes=list(manifest.notes),
    )


if __name__ == "__main__":
    main()
