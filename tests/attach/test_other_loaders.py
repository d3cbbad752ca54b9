"""Loaders of other libraries below ``feedrate run``: seen as ``feedrate.watch`` would see them, without an edit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from attaching import Place

BATCHES = 60
TIMED = """
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
    print(len(waits), sum(waits[10:]) / (asked[-1] - asked[10]))
"""
SPDL = """
from spdl.pipeline import PipelineBuilder

def load(_):
    time.sleep(0.02)
    return [1.0] * 4

pipeline = PipelineBuilder().add_source(range(60)).pipe(load).add_sink(1).build(num_threads=1)
with pipeline.auto_stop():
    timed(pipeline)
"""
GRAIN = """
import grain, numpy

class Source:
    def __len__(self):
        return 240
    def __getitem__(self, index):
        time.sleep(0.005)
        return numpy.full(4, index, numpy.float32)

order = grain.samplers.IndexSampler(240, shuffle=True, num_epochs=1, seed=1)
reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)
operations = [grain.transforms.Batch(4)]
timed(grain.DataLoader(data_source=Source(), sampler=order, operations=operations, read_options=reading))
"""
GRAIN_DATASET = """
import grain, numpy

def slow(index):
    time.sleep(0.005)
    return numpy.full(4, index, numpy.float32)

samples = grain.MapDataset.range(240).seed(1).shuffle().map(slow)
timed(samples.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)).batch(4))
"""
DALI = """
import numpy
from nvidia.dali import fn, pipeline_def
from nvidia.dali.plugin.pytorch import DALIGenericIterator

def samples(batch):
    if batch >= 60:
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


@pytest.mark.slow
@pytest.mark.parametrize("iterator", SCRIPTS)
def test_it_is_seen_without_an_edit(iterator: str, tmp_path: Path) -> None:
    """Every batch, and how long the loop waited, as the script's own clock has it."""
    place = Place(tmp_path)
    done = place.python(place.script(TIMED + SCRIPTS[iterator], torch=False))
    assert done.status == 0, done.err
    batches, share = done.out.split()
    assert int(batches) == BATCHES == place.report["loader"]["steps"]
    assert place.report["loader"]["dataset"] == iterator
    assert place.report["pacing"]["wait_share"]["value"] == pytest.approx(float(share), abs=0.05)
