"""The warm template: a process that has imported torch, runs nothing, and forks a child for every job.

Importing torch and torchvision costs 2.5 to 5 s, a fork 13 ms. For a fork to be as good as a fresh process the template
runs no tensor operation (thread pools do not survive a fork) and never asks torch about CUDA (that would poison every
child). Orders come over a socket: to fork a job, with descriptors for its report and its output, or to reap a child.
A child is reaped only when the parent says so: until then its process group id cannot be given to another process.
"""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import signal
import socket
import sys
import traceback

from feedrate.machine.linux import die_with_parent


def _fork(job: str, descriptors: list[int], control: socket.socket) -> int:
    """Fork a child that does a job; gives its process id to the template, and never returns in the child."""
    template = os.getpid()
    child = os.fork()
    if child:
        for descriptor in descriptors:
            os.close(descriptor)
        return child
    status = 1
    try:
        os.setsid()
        die_with_parent(template)
        control.close()
        report, output = descriptors
        os.dup2(output, 1)
        os.dup2(output, 2)
        from feedrate.trial.child import perform

        status = perform(job, report)
    except BaseException:  # noqa: BLE001 - printed into the output that the parent keeps
        traceback.print_exc()
    finally:
        os._exit(status)


def _serve(control: socket.socket) -> None:
    """Follow orders until the parent closes its end."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1 << 20, 2)
        if not data:
            return
        order = json.loads(data)
        if order["do"] == "fork" and len(descriptors) < 2:
            sys.exit("feedrate: the process that starts measurements has no file handles left (ulimit -n)")
        if order["do"] == "fork":
            answer = {"pid": _fork(order["job"], descriptors, control)}
        else:
            _, status = os.waitpid(order["pid"], 0)
            answer = {"status": os.waitstatus_to_exitcode(status)}
        control.send(json.dumps(answer).encode())


def main() -> None:
    """Run as ``python -m feedrate.trial.template SOCKET_DESCRIPTOR PARENT_PID``."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A semaphore of a trial that is killed in making it can be told from those of other programs by its name.
    multiprocessing.current_process()._config["semprefix"] = f"/feedrate-{os.getpid()}"  # type: ignore[attr-defined]
    control = socket.socket(fileno=descriptor)
    gc.disable()  # while 2,400 modules are imported, looking for garbage costs 1.4 of 6 s and finds none
    try:
        import torch.utils.data  # noqa: F401
        import torchvision.transforms.functional  # noqa: F401

        import feedrate.trial.child  # noqa: F401
    except (ImportError, OSError, MemoryError) as error:
        sys.exit(f"feedrate: importing torch failed: {type(error).__name__}: {error}")
    gc.enable()

    # A parent that was interrupted closes its end at any moment; that is an end like any other.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        control.send(b'{"ready": true}')
        _serve(control)


if __name__ == "__main__":
    main()
