"""A real Slurm for tests: munge, one controller and a slurmd a node, all on this machine, in a folder of their own."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "sinfo")
_CORES = ("CPUs=", "Boards=", "SocketsPerBoard=", "CoresPerSocket=", "ThreadsPerCore=")
_START_S = 30.0
_CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmUser=root
SlurmctldPort={ports[0]}
SlurmctldTimeout=30
SlurmdTimeout=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SchedulerParameters=bf_interval=1,sched_interval=1
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
{nodes}
PartitionName=main Nodes={names} Default=YES OverSubscribe=EXCLUSIVE MaxTime=INFINITE State=UP
PartitionName=small Nodes={first} OverSubscribe=EXCLUSIVE MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Why there can be no Slurm here; empty where there can."""
    absent = [name for name in PROGRAMS if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]
    if absent:
        return f"no {', '.join(absent)} (apt-get install slurm-wlm munge)"
    return "its daemons need root" if os.getuid() else ""


class Slurm:
    """Nodes ``node0``, ``node1`` … that are all this machine; the last has the feature ``fast``."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        self.names = [f"node{number}" for number in range(nodes)]
        path = f"{os.environ['PATH']}:/usr/sbin"
        self.environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": path}

    def ask(self, *command: str) -> str:
        """What a command of Slurm's prints."""
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout

    def start(self) -> None:
        """Start everything and wait until all nodes are idle."""
        ports = _free_ports(len(self.names) + 1)
        cores = " ".join(word for word in self.ask("slurmd", "-C").split() if word.startswith(_CORES))
        lines = [
            f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} {cores}"
            + (" Feature=fast" if name == self.names[-1] else "")
            for name, port in zip(self.names, ports[1:], strict=True)
        ]
        host, names, first = socket.gethostname().partition(".")[0], ",".join(self.names), self.names[0]
        places = {"host": host, "folder": self.folder, "ports": ports}
        text = _CONF.format(nodes="\n".join(lines), names=names, first=first, **places)
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "state").mkdir()
        (self.folder / "key").write_bytes(secrets.token_bytes(1024))
        (self.folder / "key").chmod(0o400)
        files = {"key-file": "key", "socket": "munge.socket", "pid-file": "munge.pid", "log-file": "munge.log"}
        files |= {"seed-file": "munge.seed"}
        self.ask("munged", "--force", *(f"--{option}={self.folder / name}" for option, name in files.items()))
        self.ask("slurmctld")
        for name in self.names:
            (self.folder / name).mkdir()
            self.ask("slurmd", "-N", name)
        until = time.monotonic() + _START_S
        while self.ask("sinfo", "-h", "-p", "main", "-t", "idle", "-o", "%D").strip() != str(len(self.names)):
            assert time.monotonic() < until, "nodes are not idle"
            time.sleep(0.2)

    def restart(self, name: str) -> None:
        """Take a node's job away; it starts anew once its credential has expired."""
        (job,) = self.ask("squeue", "-h", "-w", name, "-o", "%i").split()
        self.ask("scontrol", "requeue", job)

    def stop(self) -> None:
        """End everything."""
        with suppress(subprocess.CalledProcessError):
            self.ask("scancel", "-u", "root")
        daemons = [process for process in psutil.process_iter() if _belongs(process, str(self.folder))]
        for process in [one for daemon in daemons for one in (daemon, *daemon.children(recursive=True))]:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _belongs(process: psutil.Process, folder: str) -> bool:
    with suppress(psutil.Error):
        daemon = process.name() in ("munged", "slurmctld", "slurmd", "slurmstepd")
        return daemon and (folder in " ".join(process.cmdline()) or folder in str(process.environ().get("SLURM_CONF")))
    return False


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
