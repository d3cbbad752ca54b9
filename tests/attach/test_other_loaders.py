"""Loaders of other libraries, in one script: the hook sees them as ``feedrate.watch`` would, without an edit."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from attaching import Place

from feedrate.attach.loop import pacing
from feedrate.attach.records import Loader, loaders

BATCHES = 40
TIMED = """
import json
clocks = []
def timed(batches):
    asked, came, batches = [], [], iter(batches)
    while True:
        asked.append(time.perf_counter())
        batch = next(batches, None)
        if batch is None:
            break
        came.append(time.perf_counter())
        time.sleep(0.004)
    waits = [end - begun for begun, end in zip(asked, came)]
    clocks.append([len(waits), sum(waits[10:]) / (asked[-1] - asked[10])])
"""
SPDL = """
from spdl.pipeline import PipelineBuilder

def load(_):
    time.sleep(0.02)
    return [1.0] * 4

pipeline = PipelineBuilder().add_source(range(40)).pipe(load).add_sink(1).build(num_threads=1)
with pipeline.auto_stop():
    timed(pipeline)
"""
GRAIN = """
import grain, numpy

class Source:
    def __len__(self):
        return 160
    def __getitem__(self, index):
        time.sleep(0.005)
        return numpy.full(4, index, numpy.float32)

order = grain.samplers.IndexSampler(160, shuffle=True, num_epochs=1, seed=1)
reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)
operations = [grain.transforms.Batch(4)]
timed(grain.DataLoader(data_source=Source(), sampler=order, operations=operations, read_options=reading))
"""
GRAIN_DATASET = """
def slow(index):
    time.sleep(0.005)
    return numpy.full(4, index, numpy.float32)

samples = grain.MapDataset.range(160).seed(1).shuffle().map(slow)
timed(samples.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)).batch(4))
"""
DALI = """
from nvidia.dali import fn, pipeline_def
from nvidia.dali.plugin.pytorch import DALIGenericIterator

def samples(batch):
    if batch >= 40:
        raise StopIteration
    time.sleep(0.02)
    return numpy.random.rand(4, 4).astype(numpy.float32)

@pipeline_def(batch_size=4, num_threads=1, device_id=None)
def pipeline():
    return fn.external_source(source=samples)

timed(batch["x"] for (batch,) in DALIGenericIterator([pipeline()], ["x"]))
"""
SCRIPTS: Mapping[str, str] = {
    "spdl’s PipelineIterator": SPDL,
    "grain’s DataLoaderIterator": GRAIN,
    "grain’s Dataset": GRAIN_DATASET,
    "nvidia’s DALIGenericIterator": DALI,
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[list[float], Loader]]:
    """By iterator, what the script's own clock counted, and what the hook saw."""
    clocks, processes = Place(tmp_path_factory.mktemp("loaders")).hooked(
        TIMED + "".join(SCRIPTS.values()) + "print(json.dumps(clocks))", torch=False
    )
    by_name = {loader.settings["dataset"]: loader for loader in loaders(processes)}
    return {name: (clock, by_name[name]) for name, clock in zip(SCRIPTS, clocks, strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize("iterator", SCRIPTS)
def test_it_is_seen_without_an_edit(seen: Mapping[str, tuple[list[float], Loader]], iterator: str) -> None:
    """Every batch, and how long the loop waited, as the script's own clock has it."""
    (batches, share), loader = seen[iterator]
    assert batches == BATCHES == len(loader.steps)
    pace = pacing(loader)
    assert pace is not None
    assert pace.wait_share.value == pytest.approx(share, abs=0.05)
