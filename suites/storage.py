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
from feedrate.suites._cells import COLD_LARGE, EMULATED, LARGE, PAIRS, SMALL

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
_COLD_LARGE = {**COLD_LARGE, **PAIRS}
_SIXTEEN = {**EMULATED, "num_workers": 16, "batch_size": 128}
_IN_ORDER = {**_TWO, "access": "sequential"}
_READERS = (1, 2, 4, 8)

_CLAIMS = (
    Claim(
        id="lmdb-over-png",
        says="Training is fed faster from LMDB than from a folder of PNG files, “but not so much”.",
        sources=("IO",),
        design=(
            "A is a folder of PNG files, B an LMDB of decoded pixels; the same 64-pixel samples in the same order, two "
            "workers, before an emulated step of 10 ms, in batches of 32 and of 128: what training notices of it. The "
            "loader alone, where the difference is largest, stands beside it, from memory and from the disk, and LMDB "
            "with the PNG files themselves, which shows the container's share."
        ),
        not_shown="How much is “not so much”: the source gives no figure, and the verdict is of whether it is faster.",
        figures="LMDB is better “but not so much”; no figure is given.",
        effect=change("storage_format", "png", "lmdb", {**EMULATED, **PAIRS}, {**EMULATED, **PAIRS, "batch_size": 128}),
        asides=(
            Aside("the loader alone, from memory", change("storage_format", "png", "lmdb", {**_TWO, **_WARM})),
            Aside("the loader alone, from the disk", change("storage_format", "png", "lmdb", _COLD_LARGE)),
            Aside("PNG files inside LMDB", change("storage_format", "png", "lmdb_png", {**_TWO, **_WARM})),
        ),
    ),
    Claim(
        id="lmdb-over-hdf5",
        says="LMDB is read faster than HDF5.",
        sources=("IO",),
        design=(
            "A is an HDF5 file, one image a chunk, B an LMDB; both hold decoded pixels. Two workers, 96-pixel images "
            "from memory, 480-pixel ones from the disk. Both are opened as their libraries open them."
        ),
        not_shown="Chunks of several images, and compressed ones (chunking-under-shuffle).",
        effect=change("storage_format", "hdf5", "lmdb", {**_TWO, **_WARM}, _COLD_LARGE),
    ),
    Claim(
        id="binary-over-png",
        says="One contiguous binary file of all samples is read faster than a folder of PNG files.",
        sources=("IO",),
        design=(
            "A is a folder of PNG files, B one file of decoded pixels that is mapped into memory. Two workers, "
            "96-pixel images from memory, 480-pixel ones from the disk."
        ),
        not_shown="Which part is the container’s and which is decoding: B differs in both.",
        effect=change("storage_format", "png", "memmap", {**_TWO, **_WARM}, _COLD_LARGE),
    ),
    Claim(
        id="lmdb-resize",
        says="The size of an LMDB cannot be changed once it was made.",
        sources=("IO",),
        design=(
            "A check: an LMDB of a small map is filled until it is full, its map is enlarged (set_mapsize), and as "
            "much again is written; then every value is read. No time is measured."
        ),
        not_shown="Several processes that hold the file open while it grows.",
        facts=({"check": "lmdb_resize"},),
    ),
    Claim(
        id="lz4-in-lmdb",
        says="Compressing the values of an LMDB with lz4 pays.",
        sources=("field",),
        design=(
            "A is an LMDB of pixels, B the same with every value compressed by lz4; read without workers, so that "
            "no scheduling of theirs is timed with it, 96-pixel images from memory and 480-pixel ones from the "
            "disk; conversion to a tensor and to a batch ride along on both sides. The size on disk stands beside it."
        ),
        not_shown="A storage so slow that every byte counts.",
        effect=change("storage_format", "lmdb", "lmdb_lz4", {**SMALL, **_WARM}, COLD_LARGE),
        asides=(
            Aside(
                "size on disk",
                change("storage_format", "lmdb", "lmdb_lz4", {**SMALL, **_WARM}, metric="stored", says="less"),
            ),
        ),
    ),
    Claim(
        id="hdf5-parallel",
        says="HDF5 is vulnerable to being read by several processes at once.",
        sources=("IO",),
        design=(
            "A check: a file is opened once, and four processes that inherit the handle read random samples through it "
            "at the same time; it holds if a read fails or gives other bytes than were written. Beside it the same "
            "with a handle that every process opens for itself, as the library asks for. What a doubling of the "
            "workers does to throughput, each with a handle of its own, stands beside it."
        ),
        not_shown="Threads, and files that somebody writes meanwhile.",
        facts=({"check": "hdf5_fork", "guarded": False}, {"check": "hdf5_fork", "guarded": True}),
        asides=(
            Aside(
                "throughput per doubling of the workers, HDF5",
                slope("num_workers", _READERS, {**SMALL, "storage_format": "hdf5"}),
            ),
            Aside(
                "throughput per doubling of the workers, LMDB",
                slope("num_workers", _READERS, {**SMALL, "storage_format": "lmdb"}),
            ),
        ),
    ),
    Claim(
        id="record-formats",
        says="Record formats such as TFRecord, RecordIO and LMDB are read faster than a folder of files.",
        sources=("IO",),
        design=(
            "A is a folder of PNG files, B a TFRecord of the same files; both are read in the order of the disk, which "
            "is the only one that TFRecord has, by two workers, from memory and from the disk. WebDataset, RecordIO "
            "and LMDB stand beside it. All hold the same bytes, so that only the container differs."
        ),
        not_shown="Storage over a network, where opening many files is dear.",
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
            "What chunks gain at the first pass, in the order of the disk and from it, stands beside it, and what "
            "drawing from a buffer of 256 samples costs TFRecord, which has no random order at all."
        ),
        not_shown="An order that is shuffled by chunks; chunks that are not compressed, as these are.",
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
                "chunks instead of files in the order of the disk, from the disk",
                change("storage_format", "png", "hdf5_chunked", {**_IN_ORDER, **_COLD}),
            ),
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
            "nearly so; both shares are verified and recorded with every trial, and a cold trial must have read what "
            "it delivered from the disk. PNG files and HDF5 of 96 pixels, LMDB of 480, two workers; a cold trial reads "
            "each sample once."
        ),
        not_shown="Caches below the kernel, because of which a cold disk may still look fast.",
        effect=pair(
            _COLD,
            _WARM,
            {**_TWO, "storage_format": "png"},
            {**_COLD_LARGE, "storage_format": "lmdb"},
            {**_TWO, "storage_format": "hdf5"},
        ),
    ),
    Claim(
        id="hdf5-in-memory",
        says="HDF5 files are always read into memory as a whole (said of Caffe’s reader, tested with h5py).",
        sources=("IO",),
        design=(
            "A check: a large HDF5 file is written and put out of the page cache; then one sample of it is read. "
            "What the process holds in memory more than before, and how much of the file lies in the page cache, must "
            "come near the file's size if the sentence holds. No time is measured."
        ),
        not_shown="Caffe, of whose reader the tutorial speaks that the source quotes: what is refuted is it for h5py.",
        facts=({"check": "hdf5_memory"},),
    ),
    Claim(
        id="hdf5-swmr",
        says="Reading HDF5 in several processes is faster in its mode for a single writer and multiple readers.",
        sources=("field",),
        design=(
            "A opens the file for reading, B with that mode on; one, two and four workers, each with a file handle of "
            "its own, 96-pixel images from memory."
        ),
        not_shown="A file that somebody writes meanwhile, which is what the mode is for.",
        figures="No figure is given: IO could not bring the mode to a stable state.",
        effect=change(
            "swmr", False, True, *({**SMALL, "storage_format": "hdf5", "num_workers": readers} for readers in (1, 2, 4))
        ),
    ),
    Claim(
        id="png-burns-cpu",
        says="Decoding PNG files keeps every CPU busy while the model trains.",
        sources=("IO",),
        design=(
            "A feeds pixels from LMDB, B PNG files, to the same emulated step of 10 ms with 16 workers, as the source "
            "had them, batches of 128 patches of 64 pixels; compared is the busy share of all cores, which is told of "
            "either side."
        ),
        not_shown="Whether a GPU’s step would wait for it: that depends on the step.",
        figures="Every CPU is loaded to 100 % while it trains from PNG files with 16 workers.",
        effect=change("storage_format", "lmdb", "png", _SIXTEEN, metric="cpu_busy"),
        asides=(
            Aside(
                "the workers’ CPU time for a sample, two workers",
                change("storage_format", "lmdb", "png", {**EMULATED, **PAIRS}, metric="workers_cpu"),
            ),
            Aside("throughput", change("storage_format", "lmdb", "png", _SIXTEEN)),
        ),
    ),
    Claim(
        id="storage-device",
        says="Samples are read faster from NVMe than from SATA, and from SATA than over a network.",
        sources=("BOT",),
        design=(
            "The folder of the data is no setting of a trial: the cold trials of a run each on two devices "
            "(DATA_ROOT=) would have to be compared. What one run can say is how much its own device costs: A reads "
            "from memory, B from the disk."
        ),
        not_shown="Caches below the kernel.",
        needs="disks",
        effect=pair(_WARM, _COLD, {**_TWO, "storage_format": "png"}, {**_TWO, "storage_format": "lmdb"}, says="less"),
    ),
    Claim(
        id="io-scheduler",
        says="The kernel's I/O scheduler hardly matters when samples are read in random order.",
        sources=("BOT",),
        design=(
            "The scheduler is recorded with every run and never changed; machines that differ in it would have to be "
            "compared by what the disk costs them: A reads from memory, B from the disk, in random order."
        ),
        not_shown="What else such machines differ in.",
        needs="machines",
        effect=pair(_WARM, _COLD, {**_TWO, "storage_format": "png"}, {**_TWO, "storage_format": "hdf5"}, says="same"),
    ),
    Claim(
        id="lmdb-readahead",
        says="Opening an LMDB without readahead helps random reads when it is larger than memory, and memory is full.",
        sources=("LMDB",),
        design=(
            "A lets the kernel read ahead of what is asked for, LMDB's default, B does not. The trial may use 512 MiB "
            "of memory, page cache included, and reads 480-pixel images of a set of 2 GB from the disk, in random "
            "order, two workers. The same without the limit, and 96-pixel images from memory, stand beside it."
        ),
        not_shown="Values of less than a page, and disks whose random reads are slow.",
        effect=change("readahead", True, False, {**_COLD_LARGE, "storage_format": "lmdb", "memory_limit_mib": 512}),
        asides=(
            Aside("without the limit", change("readahead", True, False, {**_COLD_LARGE, "storage_format": "lmdb"})),
            Aside("from memory", change("readahead", True, False, {**_TWO, "storage_format": "lmdb", **_WARM})),
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
