"""Which format should my images live in?

Every storage format holds the same samples; they are read in the same order, from the page cache (warm) and, where the
kernel’s own count of cached pages says that next to none of them is there, from the disk (cold). Most formats differ
twice: in what a sample is on disk (pixels, compressed pixels, an image file) and in the container that holds it; the
two effects are shown apart. Formats that can only be streamed are compared in the order of the disk, with the others in
that order.

It does not show what a model would still notice: loading is measured alone, or before a step that is a sleep. Nor does
it show a disk by itself: below the kernel its own cache, or that of a virtual machine’s host, may hold the data.
"""

from __future__ import annotations

from feedrate.plan.claim import Aside, Claim, change, pair, slope
from feedrate.plan.suite import Suite
from feedrate.suites._cells import EMULATED, LARGE, PAIRS, PNG, SMALL

_TWO = {**SMALL, **PAIRS}
"""Small images, two workers."""
_TWO_LARGE = {**LARGE, **PAIRS}
_BOTH = {"page_cache": ["warm", "cold"]}
_PIXELS = ["lmdb", "memmap", "npy", "hdf5", "zarr", "arrow"]
_COMPRESSED = ["lmdb_lz4", "hdf5_chunked", "png", "lmdb_png", "recordio", "jpeg"]
_STREAMED = ["webdataset", "tfrecord"]
_ANY = [*_PIXELS, *_COMPRESSED]
_ORDERED = ["png", "lmdb_png", "recordio", "lmdb", "hdf5_chunked", *_STREAMED]
_WARM, _COLD = {"page_cache": "warm"}, {"page_cache": "cold"}
_IN_ORDER = {**_TWO, "access": "sequential"}
_READERS = (1, 2, 4, 8)

_CLAIMS = (
    Claim(
        id="lmdb-over-png",
        says="Training reads faster from LMDB than from a folder of PNG files.",
        sources=("IO",),
        design=(
            "A is a folder of PNG files, B an LMDB of decoded pixels; the same samples in the same order, two workers. "
            "96-pixel images from memory and from the disk, and 64-pixel ones from memory. LMDB differs twice, in "
            "container and in what a sample is; beside it stands LMDB with the PNG files themselves, which shows the "
            "container's share. The source’s “not so much” decides nothing: read the ratio. It does not show what a "
            "step would still notice."
        ),
        figures="LMDB is better “but not so much”; no figure is given.",
        effect=change("storage_format", "png", "lmdb", {**_TWO, **_WARM}, {**_TWO, **_COLD}, {**PNG, **PAIRS}),
        asides=(
            Aside("PNG files inside LMDB", change("storage_format", "png", "lmdb_png", {**_TWO, **_WARM})),
            Aside("before an emulated step of 10 ms", change("storage_format", "png", "lmdb", {**EMULATED, **PAIRS})),
        ),
    ),
    Claim(
        id="lz4-in-lmdb",
        says="Compressing the values of an LMDB with lz4 pays.",
        sources=("IO",),
        design=(
            "A is an LMDB of pixels, B the same with every value compressed by lz4; read without workers, so that "
            "no scheduling of theirs is timed with it, from memory and from the disk; conversion to a tensor and to a "
            "batch ride along on both sides. The size on disk stands beside it. It does not show a storage so slow "
            "that every byte counts."
        ),
        effect=change("storage_format", "lmdb", "lmdb_lz4", {**SMALL, **_WARM}, {**SMALL, **_COLD}),
        asides=(
            Aside(
                "size on disk",
                change("storage_format", "lmdb", "lmdb_lz4", {**SMALL, **_WARM}, metric="stored", says="less"),
            ),
        ),
    ),
    Claim(
        id="hdf5-parallel",
        says="HDF5 suffers when several processes read it at once, LMDB does not.",
        sources=("IO",),
        design=(
            "An interaction: what a doubling of the workers, from 1 to 8, does for HDF5, divided by what it does for "
            "LMDB. Both hold pixels, one image a chunk (HDF5) or a value (LMDB), and every worker opens the file for "
            "itself, as both libraries ask for; samples lie in memory. Where workers outnumber cores neither gains by "
            "more, and the quotient still tells whether one loses."
        ),
        effect=slope(
            "num_workers",
            _READERS,
            {**SMALL, "storage_format": "hdf5"},
            against=[{**SMALL, "storage_format": "lmdb"}],
            says="less",
        ),
        asides=(
            Aside("HDF5 by itself", slope("num_workers", _READERS, {**SMALL, "storage_format": "hdf5"})),
            Aside("LMDB by itself", slope("num_workers", _READERS, {**SMALL, "storage_format": "lmdb"})),
        ),
    ),
    Claim(
        id="record-formats",
        says="Record formats such as TFRecord read faster than a folder of files.",
        sources=("IO",),
        design=(
            "A is a folder of PNG files, B a TFRecord of the same files; both are read in the order of the disk, which "
            "is the only one that TFRecord has, by two workers, from memory and from the disk. WebDataset and RecordIO "
            "stand beside it, and LMDB in random order, which it can be read in. All hold the same bytes, so that only "
            "the container differs."
        ),
        figures="No figure is given: the source wishes for such a format in PyTorch.",
        effect=change("storage_format", "png", "tfrecord", {**_IN_ORDER, **_WARM}, {**_IN_ORDER, **_COLD}),
        asides=(
            Aside(
                "WebDataset, in the order of the disk",
                change("storage_format", "png", "webdataset", {**_IN_ORDER, **_WARM}),
            ),
            Aside(
                "RecordIO, in the order of the disk",
                change("storage_format", "png", "recordio", {**_IN_ORDER, **_WARM}),
            ),
            Aside(
                "PNG files inside LMDB, in random order", change("storage_format", "png", "lmdb_png", {**_TWO, **_WARM})
            ),
        ),
    ),
    Claim(
        id="chunking-under-shuffle",
        says="Formats that store samples in chunks lose their advantage when training shuffles.",
        sources=("BOT",),
        design=(
            "An interaction: what a random order in place of the disk's does for HDF5 in compressed chunks of several "
            "images, divided by what it does for a folder of PNG files, which has no chunks; two workers, from memory. "
            "TFRecord and WebDataset have no random order at all: beside it stands what drawing from a buffer of 256 "
            "samples costs the former. It does not show an order that is shuffled by chunks."
        ),
        effect=change(
            "access",
            "sequential",
            "random",
            {**_TWO, "storage_format": "hdf5_chunked"},
            against=[{**_TWO, "storage_format": "png"}],
            says="less",
        ),
        asides=(
            Aside(
                "a shuffle buffer for streams",
                change("shuffle_buffer", 0, 256, {**_IN_ORDER, "storage_format": "tfrecord"}, says="less"),
            ),
        ),
    ),
    Claim(
        id="page-cache",
        says="After the first pass the page cache hides the storage: what was slow from the disk is fast.",
        sources=("BOT",),
        design=(
            "A reads samples of which next to no page lies in the system's cache, B samples that lie there whole or "
            "nearly so; both shares are verified and recorded with every trial. PNG files, LMDB and HDF5, two workers; "
            "a cold trial reads each sample once. Below the kernel other caches remain, so that a cold disk may still "
            "look fast."
        ),
        effect=pair(
            _COLD,
            _WARM,
            {**_TWO, "storage_format": "png"},
            {**_TWO, "storage_format": "lmdb"},
            {**_TWO, "storage_format": "hdf5"},
        ),
    ),
    Claim(
        id="hdf5-in-memory",
        says="HDF5 files are always read into memory as a whole.",
        sources=("IO",),
        design=(
            "A check: a large HDF5 file is written and put out of the page cache; then one sample of it is read. "
            "What the process holds in memory more than before, and how much of the file lies in the page cache, must "
            "come near the file's size if the sentence holds. No time is measured."
        ),
        facts=({"check": "hdf5_memory"},),
    ),
    Claim(
        id="hdf5-swmr",
        says="Parallel reading of HDF5 gains from its mode for a single writer and multiple readers.",
        sources=("IO",),
        design=(
            "A opens the file for reading, B with that mode on; one, two and four workers, each with a file handle of "
            "its own, 96-pixel images from memory. That A delivers every sample once is what feedrate's tests check; "
            "here it is asked whether B is faster. Nobody writes while we read, which is what the mode is for."
        ),
        figures="The source says that it is needed; no figure is given.",
        effect=change(
            "swmr", False, True, *({**SMALL, "storage_format": "hdf5", "num_workers": readers} for readers in (1, 2, 4))
        ),
    ),
    Claim(
        id="png-burns-cpu",
        says="Decoding PNG files keeps the CPU busy while the model trains.",
        sources=("IO",),
        design=(
            "A feeds pixels from LMDB, B PNG files, to the same emulated step of 10 ms; compared is the workers' CPU "
            "time for a sample, so that it counts for nothing if one is slower. Two workers, 64-pixel patches. It "
            "tells the price of decoding, and not how many cores it fills: that depends on the step."
        ),
        figures="Every CPU is loaded to 100 % while it trains from PNG files with 16 workers.",
        effect=change("storage_format", "lmdb", "png", {**EMULATED, **PAIRS}, metric="workers_cpu"),
        asides=(Aside("throughput", change("storage_format", "lmdb", "png", {**EMULATED, **PAIRS})),),
    ),
    Claim(
        id="storage-device",
        says="Samples are read faster from NVMe than from SATA, and from SATA than over a network.",
        sources=("BOT",),
        design=(
            "The folder of the data is no setting of a trial: the cold trials of a run each on two devices "
            "(DATA_ROOT=) would have to be compared. What one run can say is how much its own device costs: A reads "
            "from memory, B from the disk. Below the kernel other caches remain."
        ),
        needs="disks",
        effect=pair(_WARM, _COLD, {**_TWO, "storage_format": "png"}, {**_TWO, "storage_format": "lmdb"}, says="less"),
    ),
    Claim(
        id="io-scheduler",
        says="The kernel's I/O scheduler hardly matters when samples are read in random order.",
        sources=("BOT",),
        design=(
            "The scheduler is recorded with every run and never changed; machines that differ in it would have to be "
            "compared by what the disk costs them: A reads from memory, B from the disk, in random order. Such "
            "machines differ in more than the scheduler."
        ),
        needs="machines",
        effect=pair(_WARM, _COLD, {**_TWO, "storage_format": "png"}, {**_TWO, "storage_format": "hdf5"}, says="less"),
    ),
    Claim(
        id="lmdb-readahead",
        says="LMDB should be opened with readahead=False.",
        sources=("field",),
        design=(
            "A lets the kernel read ahead of what is asked for, LMDB's default, B does not. Images of 96 and 480 "
            "pixels from the disk, and 96 pixels from memory, in random order, two workers: a large value spans many "
            "pages, which only reading ahead fetches in one request. It does not show sets many times larger than "
            "memory, where pages that nobody asked for push out others."
        ),
        effect=change(
            "readahead",
            True,
            False,
            {**_TWO, "storage_format": "lmdb", **_COLD},
            {**_TWO, "storage_format": "lmdb", **_WARM},
            {**_TWO_LARGE, "storage_format": "lmdb", **_COLD},
        ),
    ),
)

SUITE = Suite(
    question="Which format should my images live in?",
    charts=(
        "storage_throughput",
        "storage_effects",
        "storage_size",
        "storage_scaling",
        "storage_work",
        "storage_cpu",
        "storage_startup",
    ),
    budget="25m",
    slices=(
        # Every format that can be read in any order, from memory and from the disk, small images and large ones.
        {**_TWO, **_BOTH, "storage_format": _ANY, "num_workers": [0, 2]},
        {**_TWO_LARGE, **_BOTH, "storage_format": _ANY},
        # In the order of the disk, streams among them.
        {**_TWO, **_BOTH, "storage_format": _ORDERED, "access": "sequential"},
        {**_TWO, "storage_format": _STREAMED, "access": "sequential", "shuffle_buffer": 256},
        # More workers, and fewer, than a small machine has cores.
        {**_TWO, "storage_format": ["png", "lmdb", "hdf5"], "num_workers": [1, 4]},
        # Knobs of single formats.
        {**_TWO, "storage_format": ["png", "jpeg"], "num_workers": 0, "decoder": ["torchvision", "cv2", "pyspng"]},
        {**_TWO, "storage_format": "lmdb", "page_cache": "cold", "readahead": False},
        {**_TWO_LARGE, "storage_format": "lmdb", "page_cache": "cold", "readahead": False},
        {**_TWO, "storage_format": "hdf5", "num_workers": [0, 2], "swmr": True},
        # What of it a step would notice.
        {**_TWO, **_BOTH, "mode": "train", "step": "emulated", "step_ms": 10.0, "storage_format": ["png", "lmdb"]},
        # The same on procedural images, which everybody has.
        {**_TWO, **_BOTH, "storage_format": _ANY, "workload": "div2k_standin"},
    ),
    claims=_CLAIMS,
)
