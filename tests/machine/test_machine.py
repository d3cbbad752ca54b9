"""What a machine says of itself."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from feedrate.machine import identity
from feedrate.machine.identity import Machine, describe, storage
from feedrate.schema.errors import InputError

PLAIN = Machine(
    cpu_model="AMD EPYC 7763 64-Core Processor",
    architecture="x86_64",
    cores_physical=64,
    cores_logical=128,
    cpu_quota_cores=None,
    memory_bytes=512 * 2**30,
    memory_limit_bytes=None,
    gpu_name=None,
    gpu_count=0,
    gpu_memory_bytes=None,
    virtualised=False,
    operating_system="Linux",
    kernel="6.1.0",
    distribution="Example 12",
)


def test_this_machine_is_described() -> None:
    """Facts of the machine at hand are there and plausible; several kinds of GPU are joined in one name."""
    machine = describe()
    assert 1 <= machine.cores_logical <= (os.cpu_count() or 1)
    assert machine.cores_physical is None or 1 <= machine.cores_physical <= machine.cores_logical
    assert 2**27 < machine.memory_bytes < 2**50
    assert machine.gpu_count == 0
    assert machine.cpu_model
    assert machine.shared_memory_bytes is None or 2**20 < machine.shared_memory_bytes < 2**50
    several = describe([("B", 2), ("A", 1), ("B", 2)])
    assert (several.gpu_name, several.gpu_count, several.gpu_memory_bytes) == ("A + B", 3, 2)


def test_nothing_of_it_names_the_host_or_its_user() -> None:
    """Neither host name nor home folder appear among the facts."""
    text = describe(data_root=Path.home()).model_dump_json()
    words = re.findall(r"[A-Za-z0-9]+", text)
    assert socket.gethostname() not in words
    assert str(Path.home()) not in text


def test_the_id_stands_for_the_hardware_alone() -> None:
    """System, kernel, disk and a few megabytes that the kernel keeps to itself change nothing."""
    other = PLAIN.model_copy(
        update={
            "operating_system": "Other",
            "kernel": "7.0",
            "distribution": None,
            "virtualised": None,
            "memory_bytes": PLAIN.memory_bytes - 100 * 2**20,
            "storage": identity.Storage(file_system="ext4", device_class="nvme", rotational=False),
            "shared_memory_bytes": 64 * 2**20,
        }
    )
    assert other.machine_id == PLAIN.machine_id


@pytest.mark.parametrize(
    "change",
    [
        {"cpu_model": "AMD EPYC 7713 64-Core Processor"},
        {"cores_logical": 64},
        {"cores_physical": 32},
        {"memory_bytes": 256 * 2**30},
        {"cpu_quota_cores": 4.0},
        {"memory_limit_bytes": 2**30},
        {"architecture": "aarch64"},
        {"gpu_name": "NVIDIA H100 80GB HBM3", "gpu_count": 1, "gpu_memory_bytes": 80 * 2**30},
        {"node": "0123abcd"},
    ],
)
def test_other_hardware_is_another_machine(change: dict[str, object]) -> None:
    """Each hardware fact takes part in the id, and so does which node of a cluster it is."""
    assert PLAIN.model_copy(update=change).machine_id != PLAIN.machine_id


@pytest.mark.parametrize(
    ("change", "slug"),
    [
        ({}, "epyc-7763-128c"),
        ({"cpu_model": "Intel(R) Xeon(R) Platinum 8480C"}, "xeon-platinum-8480c-128c"),
        ({"cpu_model": "12th Gen Intel(R) Core(TM) i7-12700H"}, "core-i7-12700h-128c"),
        ({"cpu_model": "Intel(R) Xeon(R) CPU @ 2.20GHz"}, "xeon-128c"),
        ({"cpu_model": "AMD Ryzen 7 5800H with Radeon Graphics", "cores_logical": 16}, "ryzen-7-5800h-16c"),
        ({"cpu_model": "  "}, "unknown-128c"),
        ({"cpu_model": "../../etc <b>x</b> \u202e"}, "etc-b-x-b-128c"),
        ({"gpu_name": "NVIDIA GeForce RTX 4090", "gpu_count": 1}, "rtx-4090-epyc-7763-128c"),
        ({"gpu_name": "NVIDIA A100-SXM4-40GB", "gpu_count": 8}, "8x-a100-sxm4-40gb-epyc-7763-128c"),
        ({"gpu_name": "Tesla T4", "gpu_count": 1}, "t4-epyc-7763-128c"),
    ],
)
def test_the_id_begins_with_names_that_people_use(change: dict[str, object], slug: str) -> None:
    """A slug of GPU, processor and cores, fit for a folder's name, then 8 hex digits."""
    found = PLAIN.model_copy(update=change).machine_id
    assert re.fullmatch(rf"{re.escape(slug)}-[0-9a-f]{{8}}", found)
    assert len(found) < 100


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({}, None),
        ({"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.cfs_quota_us": "400000\n", "cpu.cfs_period_us": "100000\n"}, 4.0),
    ],
)
def test_the_tightest_cpu_quota_counts(
    files: dict[str, str], quota: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both versions of control groups are read; max and -1 are no limit; an outer limit binds the inner group."""
    inner = tmp_path / "inner"
    inner.mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (inner / "cpu.max").write_text("800000 100000\n")
    monkeypatch.setattr(identity, "groups", lambda controller: iter((inner, tmp_path)))
    assert identity.cpu_quota() == (quota or 8.0)


@pytest.mark.parametrize(
    ("file_system", "name", "rotational", "kind"),
    [
        ("ext4", "nvme0n1", False, "nvme"),
        ("xfs", "sda", True, "hdd"),
        ("xfs", "sdb", False, "ssd"),
        ("nfs4", "", None, "network"),
        ("fuse.sshfs", "", None, "network"),
        ("overlay", "", None, "unknown"),
        ("ext4", "vda", True, "virtual"),
        ("tmpfs", "", None, "memory"),
        ("", "", None, "unknown"),
    ],
)
def test_classes_of_storage(file_system: str, name: str, rotational: bool | None, kind: str) -> None:
    """A virtual disk's word on rotation is not believed; a network file system has no disk of its own."""
    assert identity._device_class(file_system, name, rotational) == kind


def test_what_is_set_on_a_disk_is_told_and_nobody_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Model, scheduler and readahead come from the kernel; of the mount options, those that name hosts do not."""
    device = tmp_path / "nvme0n1"
    for name, text in {
        "queue/rotational": "0\n",
        "queue/scheduler": "none [kyber] bfq\n",
        "queue/read_ahead_kb": "128\n",
        "device/model": "Example SSD 990 2TB      \n",
        "device/serial": "S3CR3T\n",
    }.items():
        (device / name).parent.mkdir(parents=True, exist_ok=True)
        (device / name).write_text(text)
    monkeypatch.setattr(identity, "_block_device", lambda folder, source: device)
    options = "rw,noatime,addr=10.0.0.7,clientaddr=10.0.0.9,rsize=1048576,username=ann"
    mounts = [
        SimpleNamespace(mountpoint=point, fstype=kind, device="/dev/nvme0n1p1", opts=options)
        for point, kind in (("/", "xfs"), (str(tmp_path), "tmpfs"), (str(tmp_path), "ext4"), ("/elsewhere", "nfs4"))
    ]
    monkeypatch.setattr(identity.psutil, "disk_partitions", lambda **_: mounts)
    found = storage(tmp_path)
    assert found.file_system == "ext4"
    assert (found.device_class, found.rotational, found.model) == ("nvme", False, "Example SSD 990 2TB")
    assert (found.scheduler, found.read_ahead_bytes) == ("kyber", 128 * 1024)
    assert found.mount_options == ("noatime", "rsize=1048576", "rw")
    assert "S3CR3T" not in found.model_dump_json()


def test_a_folder_that_is_not_there_is_the_users_to_mend(tmp_path: Path) -> None:
    """The message names the folder and what was expected; a folder on this disk has a file system."""
    assert storage(tmp_path).file_system
    assert storage(Path("/dev/shm")).device_class == "memory"
    with pytest.raises(InputError, match=r"nowhere: No such file.*expected a folder that exists"):
        storage(tmp_path / "nowhere")
