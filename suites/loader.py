"""How must the DataLoader be set so that the accelerator does not wait?

The suite crosses the DataLoader's settings with storage formats and batch sizes. It does not show what a faster disk
would give (samples lie in the page cache from before a trial begins) nor what another model would need.
"""

from __future__ import annotations

from feedrate.plan.claim import Aside, Claim, change, pair, slope
from feedrate.plan.suite import Suite
from feedrate.suites._cells import EMULATED, LMDB, PAIRS, PLANTED, PNG, REAL

_BATCHES = (8, 16, 32, 64, 128)
_SMALLEST = {"batch_size": 8}
_LARGEST = {"batch_size": 128}
_NONE = {"num_workers": 0}
_WORKERS = (1, 4, 16)
_ALONE = {**REAL, **_NONE}
_SOURCE = {**REAL, "num_workers": 16}
"""As the source had it: SRCNN, PNG, 16 workers."""
_SOURCE_64 = {**_SOURCE, "patch_size": 64}
_LARGE_TRAINING = {**REAL, **_LARGEST, "patch_size": 64}
_EPOCHS = (
    "Minutes for an epoch: 16, 8, 6, 4, 3 at batches of 8, 16, 32, 64, 128 in the source's tables; its text says 20 "
    "and 4 minutes for the first and the last."
)
_HEAVY = {
    **PLANTED,
    "mode": "train",
    "step": "emulated",
    "step_ms": 5.0,
    "batch_size": 4,
    "num_workers": 2,
    "read_us": 2000,
    "read_shape": "heavy_tailed",
}
"""Two workers make a batch every 4 ms on average, a step takes 5 ms: a stock can last through a slow read, and can be
filled again after it."""

SUITE = Suite(
    question="Which DataLoader settings keep the accelerator fed, and what bounds the rest?",
    charts=("phases", "timeline", "roofline", "throughput", "worker_scaling", "heatmap", "utilization", "formats"),
    claims=(
        Claim(
            id="batch-size-epoch",
            says="An epoch takes less time with larger batches.",
            sources=("IO",),
            design=(
                "A trains on batches of 8, B of 128; the samples of an epoch are the same, so that its time falls as "
                "throughput rises. SRCNN on 16-pixel patches from PNG files, without workers and with two, where the "
                "source had 16. It does not show what larger batches do to the loss after an epoch."
            ),
            figures=_EPOCHS,
            effect=pair(_SMALLEST, _LARGEST, _ALONE, {**REAL, **PAIRS}),
            asides=(
                Aside("per doubling of the batch, without workers", slope("batch_size", _BATCHES, _ALONE)),
                Aside("the loader alone, two workers", pair(_SMALLEST, _LARGEST, {**PNG, **PAIRS})),
            ),
        ),
        Claim(
            id="batch-size-utilization",
            says="Larger batches raise GPU utilization.",
            sources=("IO",),
            design=(
                "A trains on batches of 8, B of 128; SRCNN, PNG files and 16 workers as in the source, patches of 16 "
                "and of 64 pixels. Utilization is NVML's: the share of time in which any kernel ran. It does not show "
                "how much of the device a kernel used; power stands beside it for that."
            ),
            figures="Utilization 33, 31, 37, 52, 84 % and power from 69 to 201 W at batches of 8, 16, 32, 64, 128.",
            needs="cuda",
            effect=pair(_SMALLEST, _LARGEST, _SOURCE, _SOURCE_64, metric="gpu_util"),
            asides=(
                Aside("power", pair(_SMALLEST, _LARGEST, _SOURCE, _SOURCE_64, metric="gpu_power")),
                Aside("per doubling of the batch", slope("batch_size", (8, 32, 128), _SOURCE, metric="gpu_util")),
            ),
        ),
        Claim(
            id="fetch-nonlinear",
            says="The time to load a batch grows more slowly than the batch, so that a sample's share of it falls.",
            sources=("IO",),
            design=(
                "Batches of 8 to 128 of 16-pixel patches from PNG files, in real training without workers: then all of "
                "the loading is waited for and can be timed. The wait for a sample is fitted over the batch size: 1 "
                "means that loading grows as the batch does. Forward and backward pass are fitted beside it. With "
                "workers the wait would show what the step hides, and not what loading takes."
            ),
            figures=(
                "Of a batch's times the source says that loading grows more slowly than the batch, the forward pass "
                "hardly (a sample's share would halve with every doubling), the backward pass as the batch does."
            ),
            effect=slope("batch_size", _BATCHES, _ALONE, metric="data_wait", says="less"),
            asides=(
                Aside("forward pass of a sample", slope("batch_size", _BATCHES, _ALONE, metric="forward", says="less")),
                Aside(
                    "backward pass of a sample", slope("batch_size", _BATCHES, _ALONE, metric="backward", says="less")
                ),
            ),
        ),
        Claim(
            id="fewer-workers-small-batch",
            says="Small batches want fewer workers than large ones.",
            sources=("IO",),
            design=(
                "An interaction: what two workers in place of none do for batches of 128, divided by what they do for "
                "batches of 8; above 1, workers are worth more where batches are large. The loader alone, 64-pixel "
                "patches from PNG files. None counts as the fewest workers here, where the source compared 16 with "
                "less. It does not show the best number on machines with many cores."
            ),
            figures=f"Measured with 16 workers. {_EPOCHS}",
            effect=pair(_NONE, PAIRS, {**PNG, **_LARGEST}, against=[{**PNG, **_SMALLEST}]),
            asides=(
                Aside(
                    "from 2 workers to 8, batches of 32 against 8",
                    pair(PAIRS, {"num_workers": 8}, PNG, against=[{**PNG, **_SMALLEST}]),
                ),
            ),
        ),
        Claim(
            id="workers-async",
            says="Loading in worker processes is faster than loading in the training process.",
            sources=("TIPS", "AIDA", "API"),
            design=(
                "A loads in the training process, B in two workers, before a step of 10 ms that is emulated by a "
                "sleep: workers can load during it. Small, usual and large batches of PNG files, which cost much to "
                "decode, and raw pixels from LMDB, which cost little. The loader alone and real training, which shares "
                "a CPU's cores with its workers, stand beside it. An emulated step leaves the cores to the workers, as "
                "an accelerator does."
            ),
            effect=pair(
                _NONE,
                PAIRS,
                {**EMULATED, "storage_format": "png"},
                {**EMULATED, "storage_format": "png", **_SMALLEST},
                {**EMULATED, "storage_format": "png", **_LARGEST},
                {**EMULATED, "storage_format": "lmdb"},
            ),
            asides=(
                Aside("one worker", pair(_NONE, {"num_workers": 1}, {**EMULATED, "storage_format": "png"})),
                Aside("four workers", pair(_NONE, {"num_workers": 4}, {**EMULATED, "storage_format": "png"})),
                Aside("the loader alone, PNG", pair(_NONE, PAIRS, PNG)),
                Aside("the loader alone, LMDB", pair(_NONE, PAIRS, LMDB)),
                Aside("real training", pair(_NONE, PAIRS, {**REAL, **_SMALLEST}, {**REAL, **_LARGEST})),
            ),
        ),
        Claim(
            id="prefetch-factor",
            says="Preparing more batches ahead hides reads that take now less and now more time.",
            sources=("API",),
            design=(
                "An interaction: what eight batches a worker in place of one do where reads are planted with a heavy "
                "tail, divided by what they do where every read takes the same 2 ms. Two workers make a batch every 4 "
                "ms on average, before an emulated step of 5 ms: only a loader that is faster on average can refill "
                "its stock. The mean of the waits is the same in all cells. Waits are planted, and no disk was slow."
            ),
            effect=change("prefetch_factor", 1, 8, _HEAVY, against=[{**_HEAVY, "read_shape": "constant"}]),
            asides=(
                Aside("per doubling, heavy-tailed reads", slope("prefetch_factor", (1, 2, 4, 8), _HEAVY)),
                Aside("reads of one length", change("prefetch_factor", 1, 8, {**_HEAVY, "read_shape": "constant"})),
            ),
        ),
        Claim(
            id="utilization-is-time",
            says="The busier the GPU, the shorter the epoch.",
            sources=("BOT",),
            design=(
                "Training is made faster by more workers alone, from 1 to 16, and utilization is fitted over them: "
                "it must rise, which decides the verdict. The source says that both change in inverse proportion: "
                "throughput stands beside it, and its quotient with utilization, which would stay at 1 then. SRCNN, "
                "PNG files, batches of 128. It does not show what utilization says where the kernels themselves "
                "change, as with larger batches."
            ),
            needs="cuda",
            effect=slope("num_workers", _WORKERS, _LARGE_TRAINING, metric="gpu_util"),
            asides=(
                Aside("throughput", slope("num_workers", _WORKERS, _LARGE_TRAINING)),
                Aside(
                    "throughput ÷ utilization",
                    slope("num_workers", _WORKERS, _LARGE_TRAINING, metric="throughput_by_util"),
                ),
                Aside(
                    "throughput ÷ utilization, larger batches",
                    pair(_SMALLEST, _LARGEST, _SOURCE_64, metric="throughput_by_util"),
                ),
            ),
        ),
    ),
)
