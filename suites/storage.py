"""Which format should my images live in?

Every storage format holds the same samples, read in the same order. The page cache is warm or cold; when cold, the
kernel’s own count says that next to none of them is cached. Formats differ in encoding (pixels, compressed pixels, an
image file) and in container. The two effects are shown apart. Formats that can only be streamed are compared in the
order of the disk, with the others in that order.

It does not show what a model would still notice: loading is measured alone, or before a step that is a sleep. Nor
does it show a disk by itself. Below the kernel its own cache, or that of a virtual machine’s host, may hold the data.
"""

from __future__ import annotations

from functools import partial

from feedrate.plan.claim import Claim, Part, change, level, pair, slope
from feedrate.plan.suite import Suite
from feedrate.suites._cells import COLD, COLD_LARGE, EMULATED, FULL_LMDB, LARGE, LMDB, PAIRS, REAL, SMALL

_TWO = {**SMALL, **PAIRS}
"""Small images, two workers."""
_TWO_LARGE = {**LARGE, **PAIRS}
_BOTH = {**COLD, "page_cache": ["warm", "cold"]}
_PIXELS = ["lmdb", "memmap", "npy", "hdf5", "zarr", "arrow"]
_COMPRESSED = ["lmdb_lz4", "hdf5_chunked", "png", "lmdb_png", "recordio", "jpeg"]
_STREAMED = ["webdataset", "tfrecord"]
_ANY = [*_PIXELS, *_COMPRESSED]
_ORDERED = ["png", "lmdb_png", "recordio", "lmdb", "hdf5_chunked", *_STREAMED]
_WARM = {"page_cache": "warm"}
_COLD_LARGE = {**COLD_LARGE, **PAIRS}
_MOST = {**_TWO_LARGE, "n_samples": COLD_LARGE["n_samples"]}
"""The same set, from memory too."""
_SIXTEEN = {"num_workers": 16, "batch_size": 128}
_LARGE_BATCH = {**EMULATED, **PAIRS, "batch_size": 128}
_OF_THE_SOURCE = {**LMDB, "patch_size": 16, "num_workers": 16}
"""IO's patches and workers, the loader alone."""
_SLOW_DISK = {"disk_mib_s": 50}
"""As a disk over a network: 36 samples of 480 pixels a second, or 950 of 96."""
_IN_ORDER = {**_TWO, "access": "sequential"}
_WARM_AND_COLD = ({**_IN_ORDER, **_WARM}, {**_IN_ORDER, **COLD})
_SHUFFLED = {**COLD_LARGE, "num_workers": 1, "memory_limit_mib": 512}
"""Where memory holds a small part of the set, so that the rest of a chunk is gone when its turn comes."""
_UNSHUFFLED = {**_SHUFFLED, "access": "sequential"}
_FULL = {name: value for name, value in FULL_LMDB.items() if name != "storage_format"}
_AHEAD = {"read_ahead_kib": COLD["read_ahead_kib"]}
_PIECES = {**SMALL, **COLD, "storage_format": "hdf5", "num_workers": 1}
_CACHED = {**LARGE, "n_samples": COLD_LARGE["n_samples"], "num_workers": 1, "access": "sequential"}
_PATTERNS = {**SMALL, **_WARM, "workload": "synthetic"}
_READERS = (1, 2, 4, 8)
_formats = partial(change, "storage_format")

_CLAIMS = (
    Claim(
        id="lmdb-over-png",
        says="Training is fed faster from LMDB than from a folder of PNG files, “but not so much”.",
        sources=("IO",),
        design="""A is a folder of PNG files, B an LMDB of decoded pixels. Two workers read the same 64-pixel samples in
        the same order, before an emulated step: this is what training notices. The step takes 0.31 ms a sample: 10 ms
        for batches of 32, 40 ms for batches of 128. A GPU four times as fast (batches of 128 in 10 ms) stands beside
        it. So does the loader alone, from memory and from a cold cache, where the difference is largest. LMDB with the
        PNG files themselves shows the container's share.""",
        not_shown="How much is “not so much”: the source gives no figure, and the verdict is of whether it is faster.",
        figures="LMDB is better “but not so much”; no figure is given.",
        effect=_formats("png", "lmdb", {**EMULATED, **PAIRS}, {**_LARGE_BATCH, "step_ms": 40.0}),
        asides={
            "a GPU four times as fast": _formats("png", "lmdb", _LARGE_BATCH),
            "the loader alone, from memory": _formats("png", "lmdb", {**_TWO, **_WARM}),
            "the loader alone, from a cold cache": _formats("png", "lmdb", _COLD_LARGE),
            "PNG files inside LMDB": _formats("png", "lmdb_png", {**_TWO, **_WARM}),
        },
    ),
    Claim(
        id="lmdb-over-hdf5",
        says="LMDB is read faster than HDF5.",
        sources=("IO",),
        design="""A is an HDF5 file, one image a chunk, B an LMDB; both hold decoded pixels. Two workers, 96-pixel
        images from memory, 480-pixel ones from a cold cache. HDF5 is read as h5py’s documentation has it. LMDB must
        also be faster than the same file opened so that a read costs least. That file has no chunk cache and no file
        lock, and keeps its selection from read to read. LMDB is opened without lock, its transaction kept.""",
        not_shown="Chunks of several images (chunking-under-shuffle).",
        effect=_formats("hdf5_plain", "lmdb", {**_TWO, **_WARM}, _COLD_LARGE),
        also=(Part("HDF5 tuned", _formats("hdf5", "lmdb", {**_TWO, **_WARM}, _COLD_LARGE)),),
    ),
    Claim(
        id="binary-over-png",
        says="One contiguous binary file of all samples is read faster than a folder of PNG files.",
        sources=("IO",),
        design="""A is a folder of PNG files, B one file of decoded pixels that is mapped into memory. Two workers,
        96-pixel images from memory, 480-pixel ones from a cold cache.""",
        not_shown="Which part is the container’s and which is decoding: B differs in both.",
        effect=_formats("png", "memmap", {**_TWO, **_WARM}, _COLD_LARGE),
    ),
    Claim(
        id="lmdb-resize",
        says="The size of an LMDB cannot be changed once it was made.",
        sources=("IO",),
        design="""A check: an LMDB of a small map is filled until it is full. Its map is enlarged (set_mapsize), and as
        much again is written. Then every value is read. No time is measured.""",
        not_shown="Several processes that hold the file open while it grows.",
        facts=({"check": "lmdb_resize"},),
    ),
    Claim(
        id="lz4-in-lmdb",
        says="Compressing the values of an LMDB with lz4 pays.",
        sources=("field",),
        design="""A is an LMDB of pixels, B the same with every value compressed by lz4, neither with a checksum.
        Samples are photographs of 96 pixels from memory and of 480 pixels from a cold cache. Patterns of 96 pixels
        compress well. IO’s own setting has 16-pixel patches and 16 workers. The loader alone. The size on disk
        stands beside it.""",
        not_shown="Training: loading is alone here, and a step hides what is shorter than itself.",
        effect=_formats("lmdb", "lmdb_lz4", {**SMALL, **_WARM}, COLD_LARGE, _PATTERNS, _OF_THE_SOURCE),
        asides={
            "size on disk, photographs": _formats("lmdb", "lmdb_lz4", {**SMALL, **_WARM}, metric="stored", says="less"),
            "size on disk, patterns": _formats("lmdb", "lmdb_lz4", _PATTERNS, metric="stored", says="less"),
        },
    ),
    Claim(
        id="hdf5-parallel",
        says="HDF5 is vulnerable to being read by several processes at once.",
        sources=("IO",),
        design="""A check: a file in HDF5’s own chunks, with its own chunk cache and locks, is opened and read. While a
        thread goes on reading, four processes are forked. All five read random samples through the one handle. It holds
        if a read fails, gives other bytes than were written, or never returns. Beside it the same with a handle that
        every process opens for itself, as the library asks for. What a doubling of the workers does to throughput, each
        with a handle of its own, stands beside it.""",
        not_shown="""That it is safe: where nothing went wrong nothing is decided. Compressed files, and such that
        somebody writes meanwhile.""",
        facts=({"check": "hdf5_fork", "guarded": False}, {"check": "hdf5_fork", "guarded": True}),
        unseen="inconclusive",
        asides={
            "throughput per doubling of the workers, HDF5": slope(
                "num_workers", _READERS, {**SMALL, "storage_format": "hdf5"}
            ),
            "throughput per doubling of the workers, LMDB": slope(
                "num_workers", _READERS, {**SMALL, "storage_format": "lmdb"}
            ),
        },
    ),
    Claim(
        id="record-formats",
        says="Record formats such as TFRecord, RecordIO and LMDB are read faster than a folder of files.",
        sources=("field",),
        design="""A is a folder of PNG files, B a TFRecord of the same files. Two workers read both in the order of the
        disk, from memory and from a cold cache: TFRecord has no other order. The same must hold for RecordIO and for
        LMDB; WebDataset stands beside it. All hold the same bytes, so that only the container differs.""",
        not_shown="Storage over a network, where opening many files is dear.",
        figures="IO wishes for such a format in PyTorch, and does not say that it is faster.",
        effect=_formats("png", "tfrecord", *_WARM_AND_COLD),
        also=(
            Part("RecordIO is read faster", _formats("png", "recordio", *_WARM_AND_COLD)),
            Part("LMDB is read faster", _formats("png", "lmdb_png", *_WARM_AND_COLD)),
        ),
        asides={"WebDataset, from memory": _formats("png", "webdataset", _WARM_AND_COLD[0])},
    ),
    Claim(
        id="chunking-under-shuffle",
        says="Formats that store samples in chunks lose their advantage when training shuffles.",
        sources=("BOT",),
        design="""An interaction: the effect of chunks of eight images (B) in place of single ones (A) on an HDF5 file.
        The effect in the order of the disk is divided by that in random order. One worker reads 480-pixel images, not
        compressed, from a cold cache. A fourth of the set at most fits into the measurement's memory. The source also
        says that chunks are useless once the data are cached. So in order and from memory B is compared with 1. The
        source says with a maybe that they may mean something at the first load. This stands beside it: in order, from
        the disk as it is and from one that is limited to 50 MiB/s. So does what drawing from a buffer of 256 samples
        costs TFRecord, which has no random order at all.""",
        not_shown="Chunks of other sizes; an order that is shuffled by chunks.",
        effect=_formats("hdf5", "hdf5_chunks", _UNSHUFFLED, against=[_SHUFFLED]),
        also=(
            Part(
                "once the data are cached they are not",
                _formats("hdf5", "hdf5_chunks", _CACHED, says="less", figure=1.0),
            ),
        ),
        asides={
            "in order, from a cold cache": _formats("hdf5", "hdf5_chunks", _UNSHUFFLED),
            "in order, from a slow disk": _formats("hdf5", "hdf5_chunks", {**_UNSHUFFLED, **_SLOW_DISK}),
            "a shuffle buffer for streams": change(
                "shuffle_buffer", 0, 256, {**_IN_ORDER, "storage_format": "tfrecord"}, says="less"
            ),
        },
    ),
    Claim(
        id="page-cache",
        says="After the first pass the page cache hides the storage: what was slow from the disk is fast.",
        sources=("BOT",),
        design="""A reads samples of which next to no page lies in the system's cache. B reads samples that lie there
        whole or nearly so. Both shares are verified and recorded with every measurement. A cold measurement must have
        read what it delivered from a cold cache, and left the rest there. Two workers read PNG files of 96 pixels, LMDB
        and HDF5 of 480. A cold measurement reads each sample once, and the disk reads ahead 128 KiB.""",
        not_shown="Caches below the kernel, because of which a cold disk may still look fast.",
        effect=pair(
            COLD,
            _WARM,
            {**_TWO, "storage_format": "png"},
            {**_MOST, "storage_format": "lmdb"},
            {**_MOST, "storage_format": "hdf5"},
        ),
    ),
    Claim(
        id="hdf5-in-memory",
        says="HDF5 files are always read into memory as a whole, and cannot exceed it.",
        sources=("IO",),
        design="""Not tested. The source quotes a tutorial on Caffe, whose own reader did so. h5py reads what it is
        asked for. It cannot refute a sentence about another reader.""",
        not_shown="Anything: no reader of PyTorch’s is meant.",
        needs="caffe",
    ),
    Claim(
        id="hdf5-resizable",
        says="An HDF5 data set can be enlarged after it was made.",
        sources=("IO",),
        design="""A check: a data set is made with room to grow, filled and closed. Then it is opened again, enlarged
        and filled, and every value is read. Beside it stands a data set that was made without: HDF5 refuses to enlarge
        that. No time is measured.""",
        not_shown="Several processes that hold the file open while it grows.",
        facts=({"check": "hdf5_resize"},),
    ),
    Claim(
        id="lmdb-beyond-memory",
        says="LMDB works well with sets that are larger than memory.",
        sources=("IO",),
        design="""A is a folder of PNG files, B an LMDB of decoded pixels. The loader alone reads 64-pixel samples in
        random order, again and again, with two workers. The measurement may use 256 MiB of memory, page cache included,
        which is full of the set before its window opens. The LMDB is 0.94 GB, the PNG files are 0.36 GB. Works well is:
        is still read faster. LMDB from memory, which holds all of it, stands beside it.""",
        not_shown="Disks whose random reads are slow.",
        figures="No figure is given: the source quotes it.",
        effect=_formats("png", "lmdb", {**_FULL, **_AHEAD}),
        asides={
            "LMDB, from a set that memory holds to one that it does not": pair(
                {"page_cache": "warm"},
                {"page_cache": "full", "memory_limit_mib": 256, **_AHEAD},
                {**LMDB, **PAIRS, "n_samples": FULL_LMDB["n_samples"]},
                says="less",
            )
        },
    ),
    Claim(
        id="ordered-reads",
        says="Reading small pieces that do not lie together is slow.",
        sources=("IO",),
        design="""A reads a set in the order in which it lies in one file, B in random order. The HDF5 file holds
        decoded pixels, 96 a side (55 kB a sample). The loader alone reads it from a cold cache with one worker. The
        disk reads ahead 128 KiB, Linux's own default, which only an order can use. The same from a disk that is limited
        to 50 MiB/s stands beside it.""",
        not_shown="Disks with moving heads, for which the sentence was coined.",
        figures="No figure is given: the source quotes it.",
        effect=change("access", "sequential", "random", _PIECES, says="less"),
        asides={"from a slow disk": change("access", "sequential", "random", {**_PIECES, **_SLOW_DISK}, says="less")},
    ),
    Claim(
        id="hdf5-swmr",
        says="Reading HDF5 in several processes is faster in its mode for a single writer and multiple readers.",
        sources=("field",),
        design="""A opens the file for reading, B with that mode on. One, two and four workers, each with a file handle
        of its own, read 96-pixel images from memory.""",
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
        design="""No pair: the busy share of all cores while 16 workers feed PNG files, as in the source, in batches of
        128. They feed 64-pixel patches to an emulated step of 10 ms. They feed 16-pixel patches to SRCNN, which is
        really trained. It is compared with 100 %. LMDB in place of PNG files stands beside it.""",
        not_shown="""Whether a GPU’s step would wait for it: that depends on the step. Without a GPU real training keeps
        the cores busy by itself.""",
        figures="Every CPU is loaded to 100 % while it trains from PNG files with 16 workers.",
        effect=level(
            "cpu_busy",
            {**EMULATED, **_SIXTEEN, "storage_format": "png"},
            {**REAL, **_SIXTEEN, "storage_format": "png"},
            figure=100.0,
        ),
        asides={
            "the busy share, from LMDB to PNG files before the emulated step": _formats(
                "lmdb", "png", {**EMULATED, **_SIXTEEN}, metric="cpu_busy"
            ),
            "the workers’ CPU time for a sample, two workers": _formats(
                "lmdb", "png", {**EMULATED, **PAIRS}, metric="workers_cpu"
            ),
        },
    ),
    Claim(
        id="storage-device",
        says="Samples are read faster from NVMe than from SATA, and from SATA than over a network.",
        sources=("BOT",),
        design="""The folder of the data is no option of a measurement. One would have to compare the cold measurements
        of two runs, each on its own device (--data-root). What one run can say is how much its own device costs: A
        reads from memory, B from a cold cache.""",
        not_shown="Caches below the kernel.",
        needs="disks",
        effect=pair(_WARM, COLD, {**_TWO, "storage_format": "png"}, {**_MOST, "storage_format": "lmdb"}, says="less"),
    ),
    Claim(
        id="io-scheduler",
        says="The kernel's I/O scheduler hardly matters when samples are read in random order.",
        sources=("BOT",),
        design="""The scheduler is recorded with every run and never changed. Machines that differ in it must be
        compared by the cost of the disk. A reads from memory, B from a cold cache, both in random order.""",
        not_shown="What else such machines differ in.",
        needs="machines",
        effect=pair(_WARM, COLD, {**_TWO, "storage_format": "png"}, {**_MOST, "storage_format": "hdf5"}, says="same"),
    ),
    Claim(
        id="lmdb-readahead",
        says="Opening an LMDB without readahead helps random reads when it is larger than memory, and memory is full.",
        sources=("LMDB",),
        design="""A lets the kernel read ahead of what is asked for, LMDB's default, B does not. The measurement may use
        256 MiB of memory, page cache included, which is full of the set before its window opens. Two workers read
        64-pixel samples of a set of 0.94 GB again and again, in random order. The disk reads ahead once as far as it is
        set here, once 128 KiB, Linux's own default. 480-pixel images, each read once from the disk, and 96-pixel ones
        from memory stand beside it.""",
        not_shown="Values of less than a page, and disks whose random reads are slow.",
        effect=change("readahead", True, False, FULL_LMDB, {**FULL_LMDB, **_AHEAD}),
        asides={
            "from a cold cache, each value once": change(
                "readahead", True, False, {**_COLD_LARGE, "storage_format": "lmdb"}
            ),
            "from memory": change("readahead", True, False, {**_TWO, "storage_format": "lmdb", **_WARM}),
        },
    ),
)

SUITE = Suite(
    question="Which format should my images live in?",
    charts=("storage_throughput", "storage_size", "storage_effects", "storage_work"),
    budget="25m",
    cuda_budget="33m",
    slices=(
        # Every format that can be read in any order, from memory and from a cold cache, small images and large ones.
        {**_TWO, **_BOTH, "storage_format": _ANY, "num_workers": [0, 2]},
        {**_TWO_LARGE, **_BOTH, "storage_format": _ANY},
        # In the order of the disk, streams among them.
        {**_TWO, **_BOTH, "storage_format": _ORDERED, "access": "sequential"},
        {**_TWO, "storage_format": _STREAMED, "access": "sequential", "shuffle_buffer": 256},
        # More workers, and fewer, than a small machine has cores.
        {**_TWO, "storage_format": ["png", "lmdb", "hdf5"], "num_workers": [1, 4]},
        # Knobs of single formats.
        {**_TWO, "storage_format": ["png", "jpeg"], "num_workers": 0, "decoder": ["torchvision", "cv2", "pyspng"]},
        {**_TWO, **COLD, "storage_format": "lmdb", "readahead": False},
        {**_TWO_LARGE, **COLD, "storage_format": "lmdb", "readahead": False},
        {**_TWO, "storage_format": "hdf5", "num_workers": [0, 2], "swmr": True},
        # What of it a step would notice.
        {**_TWO, **_BOTH, "mode": "train", "step": "emulated", "step_ms": 10.0, "storage_format": ["png", "lmdb"]},
        # The same on procedural images, which everybody has.
        {**_TWO, **_BOTH, "storage_format": _ANY, "workload": "div2k_standin"},
    ),
    claims=_CLAIMS,
)
