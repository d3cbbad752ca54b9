"""How must the DataLoader be set so that the accelerator does not wait?

The suite crosses the DataLoader's settings with storage formats and batch sizes. It does not show the gain of a faster
disk: samples lie in the page cache before a measurement begins. It does not show the needs of another model.
"""

from __future__ import annotations

from feedrate.plan.claim import Claim, Part, change, pair, slope
from feedrate.plan.suite import Suite
from feedrate.suites._cells import EMULATED, LMDB, PAIRS, PLANTED, PNG, REAL

_BATCHES = (8, 16, 32, 64, 128)
_SMALLEST = {"batch_size": 8}
_LARGEST = {"batch_size": 128}
_NONE = {"num_workers": 0}
_EIGHT = {"num_workers": 8}
_WORKERS = (1, 4, 16)
_ALONE = {**REAL, **_NONE}
_SOURCE = {**REAL, "num_workers": 16}
"""As the source had it: SRCNN, PNG, 16 workers."""
_SOURCE_64 = {**_SOURCE, "patch_size": 64}
_LARGE_TRAINING = {**REAL, **_LARGEST, "patch_size": 64}
_EPOCHS = """The source's tables give 16, 8, 6, 4, 3 minutes an epoch for batches of 8, 16, 32, 64, 128. Its text says
20 and 4 minutes for the first and the last."""
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

_CLAIMS = (
    Claim(
        id="batch-size-epoch",
        says="Training SRCNN on DIV2K, an epoch takes less time with larger batches.",
        sources=("IO",),
        design="""A trains on batches of 8, B on batches of 128. An epoch has the same samples on both sides, so it
        takes less time where throughput is higher. SRCNN trains on 16-pixel patches from PNG files. On a CPU we run it
        without workers and with two. There we ask only whether an epoch takes less time. On a CUDA device it has 16
        workers, as the source had. There we compare the result with the source's 16 and 3 minutes.""",
        not_shown="The effect of larger batches on the loss after an epoch.",
        figures=_EPOCHS,
        effect=pair(_SMALLEST, _LARGEST, _ALONE, {**REAL, **PAIRS}),
        on_cuda=pair(_SMALLEST, _LARGEST, _SOURCE, figure=16 / 3),
        asides={
            "per doubling of the batch, without workers": slope("batch_size", _BATCHES, _ALONE),
            "the loader alone, two workers": pair(_SMALLEST, _LARGEST, {**PNG, **PAIRS}),
        },
    ),
    Claim(
        id="batch-size-utilization",
        says="Larger batches raise GPU utilization.",
        sources=("IO",),
        design="""A trains on batches of 8, B on batches of 128. SRCNN, PNG files and 16 workers are as in the source.
        Patches have 16 and 64 pixels. Utilization is NVML's: the share of time in which any kernel ran. We compare B ÷
        A with the source's 84 ÷ 33. We also measure power.""",
        not_shown="The share of the device that a kernel used.",
        figures="Utilization is 33, 31, 37, 52, 84 % at batches of 8, 16, 32, 64, 128. Power goes from 69 to 201 W.",
        needs="cuda",
        effect=pair(_SMALLEST, _LARGEST, _SOURCE, _SOURCE_64, metric="gpu_util", figure=84 / 33),
        asides={
            "power": pair(_SMALLEST, _LARGEST, _SOURCE, _SOURCE_64, metric="gpu_power"),
            "per doubling of the batch": slope("batch_size", (8, 32, 128), _SOURCE, metric="gpu_util"),
        },
    ),
    Claim(
        id="fetch-nonlinear",
        says="The time to load a batch grows more slowly than the batch, so that a sample's share of it falls.",
        sources=("IO",),
        design="""The loader alone makes batches of 8 to 128 of 64-pixel patches from PNG files, so nothing hides
        loading. It has 8 and 16 workers, as the source had. We fit throughput over the batch size. A ratio of 1 means
        that the time of a batch grows as the batch does. We also measure the wait in real training without workers.""",
        not_shown="The part of loading that training waits for: a step hides loading that is shorter than itself.",
        figures="No figure is given.",
        effect=slope("batch_size", _BATCHES, {**PNG, "num_workers": 8}, {**PNG, "num_workers": 16}),
        asides={
            "wait for a sample without workers": slope("batch_size", _BATCHES, _ALONE, metric="data_wait", says="less")
        },
    ),
    Claim(
        id="data-share-by-batch",
        says="The larger the batch, the smaller the share of the training time that data take.",
        sources=("IO",),
        design="""SRCNN really trains on batches of 8 to 128 of 16-pixel patches from PNG files. On a CPU it has no
        workers, so nothing hides the wait for data. On a CUDA device it has 16 workers, as the source had. We fit the
        wait's share of the wall clock over the batch size. The share must fall with every doubling.""",
        not_shown="""The share on a GPU, whose step hardly grows with the batch. There the share can grow where it falls
        on a CPU.""",
        figures="No figure is given.",
        effect=slope("batch_size", _BATCHES, _ALONE, metric="data_share", says="less"),
        on_cuda=slope("batch_size", _BATCHES, _SOURCE, metric="data_share", says="less"),
    ),
    Claim(
        id="balanced-workers",
        says="DataLoader shares the work among its workers as they become free, so that none is overloaded.",
        sources=("IO",),
        design="""A check: one of two workers takes four times as long for every sample. If the sentence holds, the fast
        worker prepares about four times as many batches. Twice as many are enough. We repeat the check where batches
        may come out of order (in_order=False). No time is measured.""",
        not_shown="Samples that are slow at random: then both workers are equally slow on average.",
        facts=({"check": "balance", "in_order": True}, {"check": "balance", "in_order": False}),
    ),
    Claim(
        id="batches-ahead",
        says="The loader has prefetch_factor × num_workers batches prepared before the first is used.",
        sources=("API",),
        design="""A check: we start a DataLoader and take nothing from it until its workers have stopped reading. Then
        we count the samples that they have read. There are two workers, and the prefetch factor is four. No time is
        measured.""",
        not_shown="Batches in pinned memory, which has room for more of them.",
        facts=({"check": "batches_ahead"},),
    ),
    Claim(
        id="forward-flat",
        says="The forward pass of a batch takes nearly the same time on a GPU, however large the batch is.",
        sources=("IO",),
        design="""SRCNN trains on batches of 8 to 128 of 16-pixel patches from PNG files. It has 16 workers, as in the
        source. We divide the span of the forward pass on the device by the samples. We fit this share over the batch
        size. If the sentence holds, it halves with every doubling. We compare the ratio with a half.""",
        not_shown="How the span divides between launching kernels and computing.",
        figures="“Nearly flat” means that a sample’s share halves with every doubling of the batch.",
        needs="cuda",
        effect=slope("batch_size", _BATCHES, _SOURCE, metric="device_forward", says="less", figure=0.5),
    ),
    Claim(
        id="backward-linear",
        says="The time of the backward pass on a GPU grows as the batch does.",
        sources=("IO",),
        design="""SRCNN trains on batches of 8 to 128 of 16-pixel patches from PNG files. It has 16 workers, as in the
        source. We divide the span of the backward pass on the device by the samples. We fit this share over the batch
        size. If the sentence holds, it stays the same.""",
        not_shown="Batches so large that they fill the device’s memory.",
        figures="“Linear” means that a sample’s share stays the same.",
        needs="cuda",
        effect=slope("batch_size", _BATCHES, _SOURCE, metric="device_backward", says="same"),
    ),
    Claim(
        id="fewer-workers-small-batch",
        says="Small batches are loaded fastest with fewer workers than large ones.",
        sources=("IO",),
        design="""An interaction: A has two workers, B eight. We divide the effect for batches of 128 by the effect for
        batches of 8. Above 1, more workers bring more where batches are large. Also, eight must be slower than two for
        batches of 8. Eight must be faster than two for batches of 128. The loader alone reads 64-pixel patches from PNG
        files.""",
        not_shown="Training, which the source speaks of. Machines with fewer cores than workers.",
        figures=f"The source measured with 16 workers. {_EPOCHS}",
        least_cores=8,
        effect=pair(PAIRS, _EIGHT, {**PNG, **_LARGEST}, against=[{**PNG, **_SMALLEST}]),
        also=(
            Part("for batches of 8, eight are slower", pair(PAIRS, _EIGHT, {**PNG, **_SMALLEST}, says="less")),
            Part("for batches of 128, eight are faster", pair(PAIRS, _EIGHT, {**PNG, **_LARGEST})),
        ),
        asides={
            "from none to two workers, batches of 128 against 8": pair(
                _NONE, PAIRS, {**PNG, **_LARGEST}, against=[{**PNG, **_SMALLEST}]
            )
        },
    ),
    Claim(
        id="workers-async",
        says="Loading in worker processes is faster than loading in the training process.",
        sources=("TIPS", "AIDA", "API"),
        design="""A loads in the training process, B in two workers. A sleep of 10 ms emulates the step, and workers can
        load during it. It leaves the cores to the workers, as an accelerator does. We load small, usual and large
        batches of PNG files, which cost much to decode. We load usual batches of raw pixels from LMDB, which cost
        little. Then the loader alone reads PNG and LMDB. Last, real training shares a CPU's cores with its workers.""",
        not_shown="More cores, and steps that keep a worker’s core busy in other ways.",
        effect=pair(
            _NONE,
            PAIRS,
            {**EMULATED, "storage_format": "png"},
            {**EMULATED, "storage_format": "png", **_SMALLEST},
            {**EMULATED, "storage_format": "png", **_LARGEST},
            {**EMULATED, "storage_format": "lmdb"},
            PNG,
            LMDB,
            {**REAL, **_SMALLEST},
            {**REAL, **_LARGEST},
        ),
        asides={
            "one worker": pair(_NONE, {"num_workers": 1}, {**EMULATED, "storage_format": "png"}),
            "four workers": pair(_NONE, {"num_workers": 4}, {**EMULATED, "storage_format": "png"}),
        },
    ),
    Claim(
        id="prefetch-factor",
        says="Preparing more batches ahead makes loading faster, as fewer exchanges cost less.",
        sources=("API",),
        design="""Each worker prepares one batch ahead in A, and eight in B. Two workers read PNG files and raw pixels
        from LMDB. They load alone and before an emulated step of 10 ms. We also measure planted reads with a heavy
        tail. All accounts say that preparing ahead helps these, as a stock outlasts slow reads.""",
        not_shown="Data that come over a network.",
        effect=change(
            "prefetch_factor",
            1,
            8,
            {**PNG, **PAIRS},
            {**LMDB, **PAIRS},
            {**EMULATED, **PAIRS, "storage_format": "png"},
            {**EMULATED, **PAIRS, "storage_format": "lmdb"},
        ),
        asides={
            "heavy-tailed reads": change("prefetch_factor", 1, 8, _HEAVY),
            "planted reads of one length": change("prefetch_factor", 1, 8, {**_HEAVY, "read_shape": "constant"}),
        },
    ),
    Claim(
        id="twelve-workers",
        says="Twelve workers are enough, where the machine has as many cores.",
        sources=("AIDA",),
        design="""A has 12 workers, B 24. Both read PNG files in batches of 32 and of 128 before an emulated step of 10
        ms. More workers must make no difference.""",
        not_shown="Shorter steps, and samples that cost more than 64-pixel PNG files.",
        least_cores=12,
        effect=pair(
            {"num_workers": 12},
            {"num_workers": 24},
            {**EMULATED, "storage_format": "png"},
            {**EMULATED, "storage_format": "png", **_LARGEST},
            says="same",
        ),
    ),
    Claim(
        id="utilization-is-time",
        says="The busier the GPU, the shorter the epoch.",
        sources=("BOT",),
        design="""SRCNN trains on batches of 128 of 64-pixel patches from PNG files. Only the workers change, from 1 to
        16, to make training faster. We fit utilization and throughput over them, and both must rise. The source says
        that utilization and time change in inverse proportion. Then throughput ÷ utilization would stay the same, a
        ratio of 1. We also measure this quotient.""",
        not_shown="The meaning of utilization where the kernels themselves change, as with larger batches.",
        needs="cuda",
        effect=slope("num_workers", _WORKERS, _LARGE_TRAINING, metric="gpu_util"),
        also=(Part("throughput rises", slope("num_workers", _WORKERS, _LARGE_TRAINING)),),
        asides={
            "throughput ÷ utilization": slope("num_workers", _WORKERS, _LARGE_TRAINING, metric="throughput_by_util"),
            "throughput ÷ utilization, larger batches": pair(
                _SMALLEST, _LARGEST, _SOURCE_64, metric="throughput_by_util"
            ),
        },
    ),
)

SUITE = Suite(
    question="Which DataLoader settings keep the GPU busy?",
    charts=("worker_scaling", "phases", "throughput"),
    utilization_along="batch_size",
    claims=_CLAIMS,
)
