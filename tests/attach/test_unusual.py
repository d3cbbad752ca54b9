"""Scripts that do what many do in a way of their own: each is seen as it is, and none is disturbed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from attaching import Place, beside_the_hook

from feedrate.attach.account import account
from feedrate.attach.records import BATCH
from feedrate.attach.report import text
from feedrate.attach.run import run

slow = pytest.mark.slow
OLD_FINDER = """
import sys
class Old:
    def find_module(self, name, path=None):
        return None
sys.meta_path.append(Old())
"""
"""As six 1.15 and those who carry a copy of it leave in every process."""


@slow
def test_a_finder_of_old_and_a_folder_named_torch_are_in_nobodys_way(tmp_path: Path) -> None:
    """PyTorch is imported as ever, and the script's own lines are told from PyTorch's."""
    folder = tmp_path / "torch" / "mnist"
    folder.mkdir(parents=True)
    script = Path(Place(folder).script("train(DataLoader(Samples(), 4))"))
    script.write_text(OLD_FINDER + script.read_text())
    ended = run([sys.executable, str(script)])
    assert ended.returncode == 0
    assert ended.report.loader is not None
    assert ended.report.loader.settings["made"][0][0] == str(script)
    assert {line.file for lines in ended.report.lines.values() for line in lines} <= {str(script)}


LIVING = """
import json
drawn = 0.0
class Drawn(torch.utils.data.Sampler):
    def __iter__(self):
        global drawn
        begun = time.perf_counter()
        time.sleep(0.1)
        drawn += time.perf_counter() - begun
        return iter(range(64))
    def __len__(self):
        return 64
loader = DataLoader(Samples(), 4, sampler=Drawn(), num_workers=1, persistent_workers=True)
for _ in range(8):
    train(loader)
print(json.dumps(drawn))
"""


@slow
def test_an_epoch_with_workers_that_live_on_draws_its_indices_once(tmp_path: Path) -> None:
    """What asking workers anew takes is of their start, and what the sampler takes of it is counted once."""
    drawn, processes = Place(tmp_path).hooked(LIVING)
    found = account(max(processes, key=lambda process: len(process.said)))
    assert found is not None
    assert found.rows["sampler"] / 1e9 == pytest.approx(drawn, rel=0.05)
    assert abs(found.share("rest")) < 0.01
    assert found.share("between_epochs") < 0.02


SPAWNED = """
import torch.distributed, torch.multiprocessing
def work(rank, store):
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    train(DataLoader(Samples(400), 4))
    torch.distributed.destroy_process_group()
if __name__ == "__main__":
    torch.multiprocessing.spawn(work, (os.path.abspath("store"),), 2)
"""


@slow
def test_ranks_that_pytorch_spawned_are_told_apart(tmp_path: Path) -> None:
    """As in PyTorch's own tutorial, where no variable says which one a process is."""
    place = Place(tmp_path)
    done = place.python(place.script(SPAWNED))
    assert done.status == 0, done.err
    assert sorted(rank for rank, _ in place.report["ranks"]) == [0, 1]
    assert "2 processes; each waits for data" in done.err


LOCKED = """
import multiprocessing
if KIND == "lock":
    lock = multiprocessing.Lock()
    def one(index):
        with lock:
            time.sleep(0.003)
else:
    cache = multiprocessing.Manager().dict()
    def one(index):
        for _ in range(64):
            cache[index] = cache.get(index, 0) + 1
class Shared(Samples):
    def __getitem__(self, index):
        one(index % 8)
        return super().__getitem__(index)
train(DataLoader(Shared(400), 4, num_workers=3))
"""


@slow
@pytest.mark.parametrize("kind", ["lock", "Manager"])
def test_workers_that_wait_for_one_another_are_not_told_to_be_more(kind: str, tmp_path: Path) -> None:
    """Neither storage nor samples are to blame for a lock, and no number of workers is forecast."""
    ended = run([sys.executable, Place(tmp_path).script(f"KIND = {kind!r}\n{LOCKED}")])
    assert ended.returncode == 0
    assert any("wait for one another" in fact.text for fact in ended.report.facts)
    assert ended.report.predictions is None
    said = dict(text(ended.report))
    assert said["next"].startswith("give each worker its own")


DECODED = """
import json, resource, subprocess
def children():
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
class Decoded(Samples):
    def __getitem__(self, index):
        before = children()
        subprocess.run([sys.executable, "-SE", "-c", "sum(range(2_000_000))"], check=True)
        return torch.tensor([children() - before])
print(json.dumps(sum(float(batch.sum()) for batch in DataLoader(Decoded(8), 2, num_workers=1))))
"""


@slow
def test_what_a_worker_s_children_compute_is_its_computing(tmp_path: Path) -> None:
    """As for ffmpeg, which decodes in a process of its own: it is no storage that is slow."""
    seconds, processes = Place(tmp_path).hooked(DECODED)
    batches = np.concatenate([process.of(BATCH) for process in processes])
    assert len(batches) == 4
    assert batches[:, 7].sum() / 1e9 >= seconds > 0.05


def test_a_loader_without_a_sampler_is_described() -> None:
    """One that fastai hands to PyTorch’s iterators has neither sampler nor batch sampler."""
    text = """
import sys
from types import SimpleNamespace
data = type("data", (), {"IterableDataset": type("I", (), {}), "Subset": type("S", (), {})})
multiprocessing = SimpleNamespace(get_start_method=lambda: "fork")
sys.modules["torch"] = SimpleNamespace(utils=SimpleNamespace(data=data), multiprocessing=multiprocessing)
from _feedrate_hook import settings
whole = {"num_workers": 2, "prefetch_factor": 2, "pin_memory": False, "persistent_workers": False, "drop_last": False}
known = settings(SimpleNamespace(**whole, dataset=[], batch_size=None, collate_fn=print))
print(known["sampler"], known["batch_size"], known["num_workers"], known["collate"])
"""
    assert beside_the_hook(text) == "NoneType None 2 builtins\n"


BACKGROUND = """
import queue
class Slow(Samples):
    def __getitem__(self, index):
        time.sleep(0.003)
        return super().__getitem__(index)
class Background(threading.Thread):
    def __init__(self, loader):
        super().__init__(daemon=True)
        self.loader, self.queue = loader, queue.Queue(4)
    def run(self):
        for batch in self.loader:
            self.queue.put(batch)
        self.queue.put(None)
background = Background(DataLoader(Slow(600), 4))
background.start()
while (batch := background.queue.get()) is not None:
    step(batch)
"""


@slow
def test_a_thread_without_workers_waits_for_what_it_prepares(tmp_path: Path) -> None:
    """The main thread waits, and why is told by what the thread did."""
    ended = run([sys.executable, Place(tmp_path).script(BACKGROUND)])
    assert ended.report.cause is not None
    assert (ended.report.cause.row, ended.report.cause.name) == ("waiting", "reading")


def test_batches_with_the_same_beginning_are_told_apart() -> None:
    """Images with one border, targets behind equal images, batches without a tensor."""
    text = """
from _feedrate_step import fingerprint
class Tensor:
    nbytes = 1
    def __init__(self, values):
        self.values = values
    def __len__(self):
        return len(self.values)
    def reshape(self, _):
        return self
    def __getitem__(self, places):
        return Tensor(self.values[places])
    def tolist(self):
        return self.values
blank, marked = Tensor([0] * 4096), Tensor([0] * 4080 + [1] * 16)
print(len({fingerprint(batch) for batch in ([blank], [marked], [blank, marked], {"x": blank, "y": blank})}))
print(fingerprint(["words"]), fingerprint([blank]) == fingerprint([Tensor([0] * 4096)]))
"""
    assert beside_the_hook(text) == "4\n0 True\n"


@pytest.mark.parametrize(
    ("reserved", "current", "index"), [([0, 5], 0, 1), ([5, 5], 1, 1), ([5, 5, 0], 2, -1), ([0, 0], 0, -1)]
)
def test_the_device_that_is_asked_is_the_one_in_use(reserved: list[int], current: int, index: int) -> None:
    """An event on another GPU would take memory there, and say that it idles; of several none is chosen."""
    text = f"""
from types import SimpleNamespace
from _feedrate_step import DEVICE
reserved = {reserved}
cuda = SimpleNamespace(
    device_count=lambda: len(reserved), memory_reserved=reserved.__getitem__, current_device=lambda: {current}
)
print(DEVICE.find(cuda), DEVICE.index)
"""
    assert beside_the_hook(text) == f"{index >= 0} {index}\n"
