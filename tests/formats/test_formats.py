"""The contract that every storage format keeps, over all formats that are found."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
import warnings
from itertools import islice
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from contract import FEW, FORMATS, SHAPES, UNLIKE, again, everything, in_child, make, of, one_pass, pack, same

from feedrate.formats import Reader, Stream
from feedrate.schema.plugins import traits


@pytest.mark.parametrize("count", [1, 33, 40])
def test_gives_back_what_was_packed(storage: ModuleType, tmp_path: Path, count: int) -> None:
    """Order, count, shapes, dtype and pixels survive, for images of one and three channels and for labels."""
    samples = make(count, lossy=of(storage).lossy)
    for field in samples[-1][:-1]:
        field[:] = 0
    opened = pack(storage, tmp_path, samples)
    assert len(opened) == count
    assert same(storage, everything(opened), samples)
    if isinstance(opened, Reader):
        for index in (count, -1):
            with pytest.raises(IndexError):
                opened[index]


def test_large_sample(few: ModuleType, tmp_path: Path) -> None:
    """A sample larger than any buffer, batch, shard or map that a format begins with is packed like others."""
    count, side = (4, 2500) if of(few).container == "lmdb" else (1, 1200)  # LMDB's map grows beyond three of 19 MB
    field = np.zeros((side, side, 3), np.uint8)
    field[::7, :, 1] = np.arange(side, dtype=np.uint8)
    samples = [(field, label) for (label,) in make(count, SHAPES[-1:])]
    assert same(few, everything(pack(few, tmp_path, samples)), samples)


def test_caller_owns_memory(storage: ModuleType, tmp_path: Path) -> None:
    """Arrays are writable, torch takes them without a warning, and writing into one changes nothing that is stored."""
    samples = make(2, lossy=of(storage).lossy)
    opened = pack(storage, tmp_path, samples)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for sample in everything(opened):
            for field in sample:
                torch.from_numpy(field).zero_()
    assert same(storage, everything(opened), samples)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("name", [name for name in FORMATS if name in FEW or traits(name).streamed])
def test_every_sample_once(name: str, tmp_path: Path) -> None:
    """With three workers an epoch holds every sample exactly once; of those that are read in any order, two formats."""
    assert sorted(one_pass(pack(name, tmp_path, make(50)), 3)) == list(range(50))


def test_survives_fork_after_use(few: ModuleType, tmp_path: Path) -> None:
    """What the parent used works in forked children, two at a time, and, after those ended, in the parent again."""
    samples = make(30, lossy=of(few).lossy)
    first, second = pack(few, tmp_path, samples), again(few, tmp_path)
    assert same(few, everything(first), everything(second))

    def both() -> list[object]:
        """Read in this process, while its own child reads."""
        inner = in_child(lambda: same(few, everything(second), samples))
        return [same(few, everything(opened), samples) for opened in (first, second)] + [inner]

    assert in_child(both) == (0, "[True, True, (0, 'True')]")
    assert same(few, everything(first), samples)
    first = None
    assert same(few, everything(second), samples)


def test_closes_files(storage: ModuleType, tmp_path: Path) -> None:
    """Nothing is open before the first read, and nothing is left open when a reader is dropped, used up or not."""

    def held() -> list[str]:
        """Files of the set that this process has open or mapped."""
        links = (str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink())
        maps = Path("/proc/self/maps").read_text().splitlines()
        return [name for name in (*links, *maps) if str(tmp_path) in name]

    opened = pack(storage, tmp_path, make(70))
    assert held() == []
    if isinstance(opened, Stream):
        assert sum(1 for _ in islice(opened.records(0), 1)) == 1
    assert len(everything(opened)) == 70
    del opened
    patience = time.monotonic() + 60  # a library may let go in a thread of its own
    while held() and time.monotonic() < patience:
        time.sleep(0.01)
    assert held() == []


def test_folder_packed_anew(storage: ModuleType, tmp_path: Path) -> None:
    """A new reader sees what was packed last, also while a reader of the folder's earlier life is alive."""
    lossy = of(storage).lossy
    old = pack(storage, tmp_path / "set", make(5, lossy=lossy))
    assert len(everything(old)) == 5
    (tmp_path / "set").rename(tmp_path / "aside")
    samples = make(6, lossy=lossy)
    assert same(storage, everything(pack(storage, tmp_path / "set", samples)), samples)


MEMORY = """
import importlib, os, sys
from pathlib import Path
import numpy as np
from feedrate.formats import _images
root, counts = sys.argv[1], dict(argument.split("=") for argument in sys.argv[2:])
noise = np.random.default_rng(0).integers(0, 256, (96, 96, 3), np.uint8)
formats = {name: importlib.import_module(f"feedrate.formats.{name}") for name in counts}
formats["litdata"].CHUNK_BYTES = 100_000  # each of 32 writers keeps a chunk in memory
_images.COMPRESS_LEVEL = 0

def peak_kb(name, count):
    folder = Path(root, f"{name}{count}")
    folder.mkdir()
    formats[name].pack(((noise.copy(),) for _ in range(count)), folder)
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])

for name, count in counts.items():
    if not (child := os.fork()):
        print(name, -peak_kb(name, int(count)) + peak_kb(name, 3 * int(count)), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.slow
def test_memory_is_flat(tmp_path: Path) -> None:
    """Packing three times as many samples of 27 KiB takes less than 40 % of what they have more, in each format."""
    counts = {name: 300 if traits(name).encoded else 600 for name in UNLIKE}  # to encode takes 1 ms each
    command = [sys.executable, "-c", MEMORY, str(tmp_path), *(f"{name}={count}" for name, count in counts.items())]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    grown_kb = {name: int(kb) for name, kb in map(str.split, lines)}
    assert grown_kb.keys() == counts.keys()
    assert {name: kb for name, kb in grown_kb.items() if kb > 0.4 * 2 * counts[name] * 27} == {}


def test_every_format_says_what_it_is() -> None:
    """Each has a version, requirements and traits that the plan reads without importing it, and a docstring."""
    for name in FORMATS:
        module = importlib.import_module(f"feedrate.formats.{name}")
        described = traits(name)
        assert module.TRAITS["container"] == described.container, name
        assert set(described.holds) <= {"images", "files", "tokens"}, name
        assert described.stores in {"pixels", "lz4", "gzip", "png", "jpeg", "files"}, name
        assert set(described.knobs) <= {"decoder", "readahead", "swmr"}, name
        assert ("decoder" in described.knobs) == described.encoded, name
        assert module.VERSION >= 1, name
        assert len(module.__doc__.splitlines()) > 5, name
        assert hasattr(module, "MEAN_ERROR") == described.lossy, name
