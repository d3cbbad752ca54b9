"""Which format should my images live in?

Every storage format holds the same samples, and we read them in the same order. The page cache is warm or cold. When it
is cold, the kernel’s own count says that next to none of the samples are cached. Formats differ in encoding (pixels,
compressed pixels, an image file) and in container. We show the two effects apart. Some formats can only be streamed. We
compare these with the others in the order of the disk.

It does not show how much of the difference a model would notice. We measure loading alone, or before a step that is a
sleep. It does not show a disk by itself. Below the kernel, the disk’s own cache may hold the data. So may the cache of
a virtual machine’s host.
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
        design="""A is a folder of PNG files, B is an LMDB of decoded pixels. Two workers read the same 64-pixel samples
        in the same order. They read before an emulated step, so we see the difference that training notices. The step
        takes 0.31 ms a sample: 10 ms for batches of 32, 40 ms for batches of 128. We also measure a GPU four times as
        fast (batches of 128 in 10 ms). We also measure the loader alone, which shows the largest difference. It reads
        from memory and from a cold cache. LMDB with the PNG files themselves shows the container's share.""",
        not_shown="""The size of “not so much”: the source gives no figure. The verdict says only whether LMDB is
        faster.""",
        figures="LMDB is better “but not so much”. No figure is given.",
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
        design="""A is an HDF5 file with one image a chunk, B is an LMDB. Both hold decoded pixels. Two workers read
        96-pixel images from memory and 480-pixel images from a cold cache. We read HDF5 as h5py’s documentation says.
        LMDB must also be faster than the same file opened so that a read costs least. That file has no chunk cache and
        no file lock, and keeps its selection from read to read. We open LMDB without a lock and keep its
        transaction.""",
        not_shown="Chunks of several images (chunking-under-shuffle).",
        effect=_formats("hdf5_plain", "lmdb", {**_TWO, **_WARM}, _COLD_LARGE),
        also=(Part("HDF5 tuned", _formats("hdf5", "lmdb", {**_TWO, **_WARM}, _COLD_LARGE)),),
    ),
    Claim(
        id="binary-over-png",
        says="One contiguous binary file of all samples is read faster than a folder of PNG files.",
        sources=("IO",),
        design="""A is a folder of PNG files. B is one file of decoded pixels that is mapped into memory. Two workers
        read 96-pixel images from memory and 480-pixel images from a cold cache.""",
        not_shown="How the effect divides between container and decoding: B differs in both.",
        effect=_formats("png", "memmap", {**_TWO, **_WARM}, _COLD_LARGE),
    ),
    Claim(
        id="lmdb-resize",
        says="The size of an LMDB cannot be changed once it was made.",
        sources=("IO",),
        design="""A check: we fill an LMDB of a small map until it is full. We enlarge its map (set_mapsize) and write
        as much again. Then we read every value. No time is measured.""",
        not_shown="Several processes that hold the file open while it grows.",
        facts=({"check": "lmdb_resize"},),
    ),
    Claim(
        id="lz4-in-lmdb",
        says="Compressing the values of an LMDB with lz4 pays.",
        sources=("field",),
        design="""A is an LMDB of pixels. B is the same with every value compressed by lz4. Neither has a checksum. The
        loader alone reads photographs of 96 pixels from memory and of 480 pixels from a cold cache. It reads patterns
        of 96 pixels, which compress well. It reads 16-pixel patches with 16 workers, IO’s own setting. We also measure
        the size on disk.""",
        not_shown="Training: the loader is alone here, and a step hides loading that is shorter than itself.",
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
        design="""A check: we open and read a file in HDF5’s own chunks, with its own chunk cache and locks. While a
        thread goes on reading, we fork four processes. All five read random samples through the one handle. The
        sentence holds if a read fails, gives wrong bytes, or never returns. We repeat the check with a handle that
        every process opens for itself, as the library asks. We also measure throughput per doubling of the workers,
        each with its own handle.""",
        not_shown="""That it is safe: a check without errors decides nothing. Compressed files, and files that somebody
        writes meanwhile.""",
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
        design="""A is a folder of PNG files, B is a TFRecord of the same files. Two workers read both in the order of
        the disk: TFRecord has no other order. They read from memory and from a cold cache. The same must hold for
        RecordIO and for LMDB. We also measure WebDataset. All hold the same bytes, so only the container differs.""",
        not_shown="Storage over a network, where opening many files costs much.",
        figures="IO wishes for such a format in PyTorch, but does not say that it is faster.",
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
        design="""An interaction: A is an HDF5 file with chunks of one image, B has chunks of eight. We divide the
        effect in the order of the disk by the effect in random order. One worker reads uncompressed 480-pixel images
        from a cold cache. At most a fourth of the set fits into the measurement's memory. The source also says that
        chunks are useless once the data are cached. So we compare B ÷ A with 1, in order and from memory. The source
        says that chunks may mean something at the first load. So we also measure reading in order from the disk, as it
        is and limited to 50 MiB/s. We also measure the cost of drawing from a buffer of 256 samples with TFRecord.
        TFRecord has no random order at all.""",
        not_shown="Chunks of other sizes. An order that is shuffled by chunks.",
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
        design="""A reads samples that have next to no page in the system's cache. B reads samples that lie there whole
        or nearly so. We verify and record both shares with every measurement. A cold measurement must read its samples
        from the disk, and leave the others there. Two workers read PNG files of 96 pixels, and LMDB and HDF5 of 480
        pixels. A cold measurement reads each sample once, and the disk reads ahead 128 KiB.""",
        not_shown="Caches below the kernel, which may make a cold disk look fast.",
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
        design="""This claim is not tested. The source quotes a tutorial on Caffe, whose own reader did so. h5py reads
        only the data that it is asked for. It cannot refute a sentence about another reader.""",
        not_shown="Nothing is measured: the sentence is not about a reader of PyTorch’s.",
        needs="caffe",
    ),
    Claim(
        id="hdf5-resizable",
        says="An HDF5 data set can be enlarged after it was made.",
        sources=("IO",),
        design="""A check: we make a data set with room to grow, fill it and close it. Then we open it again, enlarge it
        and fill it, and read every value. We also try a data set without room to grow: HDF5 refuses to enlarge it. No
        time is measured.""",
        not_shown="Several processes that hold the file open while it grows.",
        facts=({"check": "hdf5_resize"},),
    ),
    Claim(
        id="lmdb-beyond-memory",
        says="LMDB works well with sets that are larger than memory.",
        sources=("IO",),
        design="""A is a folder of PNG files, B is an LMDB of decoded pixels. The loader alone reads 64-pixel samples in
        random order, again and again, with two workers. The measurement may use 256 MiB of memory, page cache included.
        The set fills this memory before the window opens. The LMDB has 0.94 GB, the PNG files have 0.36 GB. “Works
        well” means that LMDB is still read faster. We also measure LMDB from memory that holds all of it.""",
        not_shown="Disks with slow random reads.",
        figures="No figure is given: the source quotes the sentence.",
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
        design="""A reads a set in the order in which it lies in one file. B reads it in random order. The HDF5 file
        holds decoded pixels, 96 a side (55 kB a sample). The loader alone reads it from a cold cache with one worker.
        The disk reads ahead 128 KiB, Linux's own default, which helps only reads in order. We also measure a disk that
        is limited to 50 MiB/s.""",
        not_shown="Disks with moving heads, for which the sentence was coined.",
        figures="No figure is given: the source quotes the sentence.",
        effect=change("access", "sequential", "random", _PIECES, says="less"),
        asides={"from a slow disk": change("access", "sequential", "random", {**_PIECES, **_SLOW_DISK}, says="less")},
    ),
    Claim(
        id="hdf5-swmr",
        says="Reading HDF5 in several processes is faster in its mode for a single writer and multiple readers.",
        sources=("field",),
        design="""A opens the file for reading, B opens it with that mode on. One, two and four workers read 96-pixel
        images from memory. Each worker has its own file handle.""",
        not_shown="A file that somebody writes meanwhile: the mode is made for that.",
        figures="No figure is given: IO could not bring the mode to a stable state.",
        effect=change(
            "swmr", False, True, *({**SMALL, "storage_format": "hdf5", "num_workers": readers} for readers in (1, 2, 4))
        ),
    ),
    Claim(
        id="png-burns-cpu",
        says="Decoding PNG files keeps every CPU busy while the model trains.",
        sources=("IO",),
        design="""This claim has no pair: we compare the busy share of all cores with 100 %. As in the source, 16
        workers feed PNG files. Batches have 128 patches. The workers feed 64-pixel patches to an emulated step of 10
        ms. They feed 16-pixel patches to SRCNN, which really trains. We also measure LMDB in place of PNG files.""",
        not_shown="""Whether a GPU’s step would wait for it: that depends on the step. Without a GPU, real training
        itself keeps the cores busy.""",
        figures="Every CPU is loaded to 100 % while training reads PNG files with 16 workers.",
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
        design="""The folder of the data is not an option of a measurement. To test the sentence, compare the cold
        measurements of two runs, each on its own device (--data-root). One run can only say how much its own device
        costs. A reads from memory, B from a cold cache.""",
        not_shown="Caches below the kernel.",
        needs="disks",
        effect=pair(_WARM, COLD, {**_TWO, "storage_format": "png"}, {**_MOST, "storage_format": "lmdb"}, says="less"),
    ),
    Claim(
        id="io-scheduler",
        says="The kernel's I/O scheduler hardly matters when samples are read in random order.",
        sources=("BOT",),
        design="""feedrate records the scheduler with every run and never changes it. To test the sentence, compare the
        cost of the disk on machines that differ in the scheduler. A reads from memory, B from a cold cache. Both read
        in random order.""",
        not_shown="Other differences between such machines.",
        needs="machines",
        effect=pair(_WARM, COLD, {**_TWO, "storage_format": "png"}, {**_MOST, "storage_format": "hdf5"}, says="same"),
    ),
    Claim(
        id="lmdb-readahead",
        says="Opening an LMDB without readahead helps random reads when it is larger than memory, and memory is full.",
        sources=("LMDB",),
        design="""A lets the kernel read ahead, which is LMDB's default. B does not. The measurement may use 256 MiB of
        memory, page cache included. The set fills this memory before the window opens. Two workers read 64-pixel
        samples of a set of 0.94 GB again and again, in random order. In one case the disk reads ahead as far as it is
        set here. In the other it reads ahead 128 KiB, Linux's own default. We also measure 480-pixel images, each read
        once from the disk. We also measure 96-pixel images from memory.""",
        not_shown="Values that are smaller than a page, and disks with slow random reads.",
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
