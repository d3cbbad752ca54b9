"""What this machine is: hardware facts that name it, the system it runs, the libraries that a run used.

Recorded is what makes results comparable; host and user names, paths, addresses, serial numbers and UUIDs are not.
``machine_id`` stands for the hardware alone: a new kernel, driver or torch is another run on the same machine. What
Linux does not tell is None.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict, computed_field

from feedrate.schema.errors import EnvironmentFault, InputError
from feedrate.schema.redaction import scrub

__all__ = ["Machine", "Software", "Storage", "describe", "disk", "environment", "scrub", "software", "storage"]

_UNLIMITED = 1 << 60
"""What control groups of version 1 write is more where there is no limit."""
_NOISE = re.compile(
    r"\((?:R|TM)\)|@.*|\bwith .*|\b\d+-core\b|\b\d+th gen\b"
    r"|\b(?:CPU|Processor|Intel|AMD|NVIDIA|GeForce|Tesla|Quadro)\b",
    re.IGNORECASE,
)
"""Words of a product's name that tell nothing more."""


_NETWORK = re.compile("nfs4?|cifs|smb3|smbfs|lustre|ceph|glusterfs|beegfs|gpfs|afs|9p|virtiofs|fuse.*")
_MEMORY = re.compile("tmpfs|ramfs")
_BY_NAME = (("nvme", "nvme"), ("vd", "virtual"), ("xvd", "virtual"), ("mmcblk", "flash card"), ("zram", "memory"))
_OPTIONS = frozenset(
    (
        *("ro", "rw", "sync", "async", "dirsync", "atime", "noatime", "relatime", "strictatime", "lazytime"),
        *("nodiratime", "discard", "barrier", "nobarrier", "data", "journal_checksum", "commit", "dax", "stripe"),
        *("sunit", "swidth", "logbsize", "largeio", "allocsize", "compress", "compress-force", "ssd", "nodatacow"),
        *("autodefrag", "rsize", "wsize", "vers", "proto", "nconnect", "hard", "soft", "noac", "actimeo", "cache"),
        *("acregmin", "acregmax", "acdirmin", "acdirmax", "local_lock", "flock", "max_read", "size"),
    )
)
"""Mount options that can change how fast a file is read; all others may name people, hosts or folders."""


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def cpu_model() -> str:
    """Name of the processor as it calls itself; where it has none (Arm), implementer and part number."""
    facts = dict(re.findall(r"^([\w ]+?)\s*:[ \t]*(\S.*)$", _text("/proc/cpuinfo"), re.MULTILINE))
    if name := facts.get("model name") or facts.get("Model") or facts.get("cpu"):
        return str(name).strip()
    parts = [facts[label] for label in ("CPU implementer", "CPU part") if label in facts]
    return " ".join([platform.machine(), *parts])


def usable_cores() -> tuple[int, ...]:
    """Numbers of the hardware threads that this process may run on."""
    return tuple(sorted(os.sched_getaffinity(0)))


def physical_cores(threads: Sequence[int]) -> int | None:
    """Count the cores that hardware threads belong to, threads of one core once."""
    folders = [f"/sys/devices/system/cpu/cpu{thread}/topology" for thread in threads]
    cores = {(_text(f"{folder}/physical_package_id"), _text(f"{folder}/core_id")) for folder in folders}
    return None if ("", "") in cores else len(cores)


def groups(controller: str) -> Iterator[Path]:
    """Folders of this process' control groups for a controller, innermost first, both versions' layouts."""
    for line in _text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = Path("/sys/fs/cgroup", controllers and controller)
        group = root / path.strip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root))


def cpu_quota() -> float | None:
    """Cores' worth of CPU time that the control groups allow, the tightest of them; None without a limit."""
    quotas: list[float] = []
    for folder in groups("cpu"):
        words = _text(folder / "cpu.max").split()
        if not words:
            words = [_text(folder / name).strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
        if all(word.isdigit() for word in words) and int(words[1]) > 0:
            quotas.append(round(int(words[0]) / int(words[1]), 2))
    return min(quotas, default=None)


def memory_limit() -> int | None:
    """Bytes of memory that the control groups allow, the tightest of them; None without a limit."""
    names = ("memory.max", "memory.limit_in_bytes")
    texts = [_text(folder / name).strip() for folder in groups("memory") for name in names]
    return min((int(text) for text in texts if text.isdigit() and int(text) < _UNLIMITED), default=None)


class Storage(BaseModel):
    """The storage under a folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file_system: str | None
    """As the kernel names it: ext4, xfs, nfs4, overlay …"""
    device_class: str
    """nvme, ssd, hdd, virtual, flash card, network, memory; unknown for what the kernel does not tell."""
    rotational: bool | None
    """The kernel's word for spinning disks; None where it means nothing (virtual, network, memory)."""
    model: str | None = None
    """What its maker calls the disk; never its serial number. None where the kernel names none."""
    mount_options: tuple[str, ...] = ()
    """Those that can change how fast a file is read, sorted."""
    scheduler: str | None = None
    """The kernel's I/O scheduler of the disk: none, mq-deadline, bfq, kyber."""
    read_ahead_bytes: int | None = None
    """How far the kernel reads ahead in a file at most."""


class Machine(BaseModel):
    """Facts of the machine that a run was measured on."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # a dump carries machine_id, which is computed anew

    cpu_model: str
    """As the processor calls itself."""
    architecture: str
    cores_physical: int | None
    """Cores that this process may use, hardware threads of one core counted once."""
    cores_logical: int
    """Hardware threads that this process may use (affinity)."""
    cpu_quota_cores: float | None
    """Cores' worth of time that the control group allows; None without a limit."""
    memory_bytes: int
    memory_limit_bytes: int | None
    """Memory that the control group allows; None without a limit."""
    gpu_name: str | None
    """All kinds of GPU, joined; None without one."""
    gpu_count: int
    """GPUs that the driver sees, hidden ones included."""
    gpu_memory_bytes: int | None
    """Memory of the first GPU."""
    virtualised: bool | None
    """Whether a hypervisor says that it is there; None where it could not be told."""
    operating_system: str
    kernel: str
    distribution: str | None
    """Name and version, as the system calls itself."""
    storage: Storage | None = None
    """What the packed data lies on."""
    shared_memory_bytes: int | None = None
    """Size of /dev/shm, through which workers hand batches over; None where there is none, and in older runs."""
    node: str | None = None
    """A cluster's node: 8 hex digits that stand for its name (``cluster.place``); None of a machine by itself."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def machine_id(self) -> str:
        """A readable slug and 8 hex digits of sha256 over the hardware facts, memory in whole GiB."""
        words = ("cpu_model", "architecture", "gpu_name", "gpu_count")
        cores = ("cores_physical", "cores_logical", "cpu_quota_cores")
        facts = {name: getattr(self, name) for name in (*words, *cores)}
        for name in ("memory_bytes", "memory_limit_bytes", "gpu_memory_bytes"):
            size = getattr(self, name)
            facts[name] = None if size is None else round(size / 2**30)
        if self.node:
            facts["node"] = self.node
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        gpus = [f"{self.gpu_count}x"] * (self.gpu_count > 1) + [_short(self.gpu_name)] * (self.gpu_name is not None)
        slug = "-".join([*gpus, _short(self.cpu_model), f"{self.cores_logical}c"])
        return f"{slug}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _short(name: str | None) -> str:
    """A processor's or GPU's name as a slug: ``AMD EPYC 7763 64-Core Processor`` → ``epyc-7763``."""
    words = re.sub(r"[^a-z0-9]+", "-", _NOISE.sub(" ", name or "").lower()).strip("-")
    return words[:32].strip("-") or "unknown"


class Software(BaseModel):
    """Versions of what a run used; None is not installed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    python: str
    torch: str | None = None
    torchvision: str | None = None
    numpy: str | None = None
    pillow: str | None = None
    lmdb: str | None = None
    lz4: str | None = None
    h5py: str | None = None
    zarr: str | None = None
    webdataset: str | None = None
    tfrecord: str | None = None
    crc32c: str | None = None
    opencv_python_headless: str | None = None
    pyspng: str | None = None
    pyarrow: str | None = None
    pandas: str | None = None
    nvidia_ml_py: str | None = None


_ALLOCATOR = r"[a-z0-9_]+:(?:[Tt]rue|[Ff]alse|native|cudaMallocAsync|[0-9.]+|\[[0-9:,>]*\])"
_ENVIRONMENT = {
    **dict.fromkeys(("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"), rf"{_ALLOCATOR}(?:,{_ALLOCATOR})*"),
    "CUDA_MODULE_LOADING": "LAZY|EAGER|DEFAULT",
    "CUDA_DEVICE_MAX_CONNECTIONS": r"\d{1,3}",
    "CUDA_DEVICE_ORDER": "FASTEST_FIRST|PCI_BUS_ID",
    "NVIDIA_TF32_OVERRIDE": "[01]",
}
"""Variables that change what CUDA and PyTorch do, and the forms in which their values are recorded."""
UNKNOWN_FORM = "another value"
"""What is recorded of a value of another form: it may be anything."""


def environment() -> dict[str, str]:
    """List the variables that are set and change what CUDA and PyTorch do, by their names in small letters."""
    values = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    forms = {name: re.fullmatch(_ENVIRONMENT[name], text) for name, text in values.items()}
    return {name.lower(): form[0] if form else UNKNOWN_FORM for name, form in forms.items()}


def software() -> Software:
    """Read the versions from the installed packages' metadata; imports none of them."""
    versions: dict[str, str] = {}
    for name in Software.model_fields:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return Software(**{**versions, "python": platform.python_version()})


def _mount(folder: Path) -> tuple[str | None, str, tuple[str, ...]]:
    """File system, source and options of the mount nearest above a folder; of several at one place the last."""
    try:
        mounts = [mount for mount in psutil.disk_partitions(all=True) if folder.is_relative_to(mount.mountpoint)]
    except OSError:
        mounts = []
    if not mounts:
        return None, "", ()
    mount = max(reversed(mounts), key=lambda mount: len(mount.mountpoint))
    options = {option for option in mount.opts.split(",") if option.partition("=")[0] in _OPTIONS}
    return mount.fstype, mount.device, tuple(sorted(options))


def _block_device(folder: Path, source: str) -> Path | None:
    """The disk under a folder, below /sys; btrfs and others number their files otherwise."""
    numbers = [folder.stat().st_dev]
    if source.startswith("/dev/") and Path(source).exists():
        numbers.append(Path(source).stat().st_rdev)
    for number in numbers:
        block = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
        for device in (block, block.parent):  # a partition's queue is its disk's
            if (device / "queue" / "rotational").exists():
                return device
    return None


def disk(folder: Path) -> Path:
    """Find the block device that a folder lies on, below /sys; an EnvironmentFault where it lies on none.

    Raises:
        OSError: the folder cannot be looked at.
    """
    if (device := _block_device(folder, _mount(folder.resolve(strict=True))[1])) is None:
        raise EnvironmentFault("the data folder lies on no disk that the kernel tells of")
    return device


def _device_class(file_system: str, name: str, rotational: bool | None) -> str:
    if _MEMORY.fullmatch(file_system):
        return "memory"
    if _NETWORK.fullmatch(file_system):
        return "network"
    kind = next((kind for prefix, kind in _BY_NAME if name.startswith(prefix)), None)
    if kind or rotational is None:
        return kind or "unknown"
    return "hdd" if rotational else "ssd"


def storage(folder: Path) -> Storage:
    """Describe the storage that a folder lies on; an InputError where it cannot be looked at."""
    try:
        file_system, source, options = _mount(folder.resolve(strict=True))
        device = _block_device(folder, source)
    except OSError as error:
        raise InputError(f"data folder {folder}: {error.strerror}; expected a folder that exists") from error
    names = ("queue/rotational", "queue/read_ahead_kb", "queue/scheduler", "device/model")
    spins, ahead, scheduler, model = ((_text(device / name).strip() or None) if device else None for name in names)
    rotational = None if spins is None else spins == "1"
    kind = _device_class(file_system or "", device.name if device else "", rotational)
    chosen = re.search(r"\[(.*?)\]", scheduler or "")  # "none [mq-deadline] kyber bfq"
    return Storage(
        file_system=file_system,
        device_class=kind,
        rotational=rotational if kind in ("nvme", "ssd", "hdd") else None,
        model=model,
        mount_options=options,
        scheduler=chosen[1] if chosen else scheduler,
        read_ahead_bytes=int(ahead) * 1024 if ahead else None,
    )


def describe(gpus: Sequence[tuple[str, int]] = (), data_root: Path | None = None) -> Machine:
    """Find out what this machine is, with its GPUs (``probes.gpu.installed``) and the disk below a folder, if given.

    Raises:
        InputError: ``data_root`` does not exist.
    """
    threads = usable_cores()
    processors = _text("/proc/cpuinfo")
    virtual = bool(_text("/sys/hypervisor/type").strip() or re.search(r"(?m)^flags\s*:.*\bhypervisor\b", processors))
    distribution, shared_memory = None, None
    with suppress(OSError):
        release = platform.freedesktop_os_release()
        distribution = scrub(release.get("PRETTY_NAME") or release["NAME"])
    with suppress(OSError):
        shared_memory = psutil.disk_usage("/dev/shm").total or None  # noqa: S108 - asked, not written
    return Machine(
        cpu_model=scrub(cpu_model()),
        architecture=platform.machine(),
        cores_physical=physical_cores(threads),
        cores_logical=len(threads),
        cpu_quota_cores=cpu_quota(),
        memory_bytes=psutil.virtual_memory().total,
        memory_limit_bytes=memory_limit(),
        gpu_name=" + ".join(sorted({name for name, _ in gpus})) or None,
        gpu_count=len(gpus),
        gpu_memory_bytes=gpus[0][1] if gpus else None,
        virtualised=virtual if virtual or (processors and platform.machine() in ("x86_64", "i686")) else None,
        operating_system=platform.system(),
        kernel=scrub(platform.release()),
        distribution=distribution,
        storage=None if data_root is None else storage(data_root),
        shared_memory_bytes=shared_memory,
    )
