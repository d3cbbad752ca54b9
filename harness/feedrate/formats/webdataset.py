"""WebDataset: tar files of PNG files, written and read with the ``webdataset`` library.

A sample is the run of files with one key: ``00000012.0.png``, ``00000012.1.png``, or ``00000012.0.file`` where it is a
file as it was. A tar file has no index, so samples can only be streamed, over anything that gives bytes.

Pitfalls, each handled here by using the library's reader of tar files without the pipeline around it:

- the pipeline ``WebDataset`` divides shards among workers by itself (a worker without one is an error) and opens
  addresses through ``gopen``, to which a path with a colon is an address;
- a handler such as ``warn_and_continue``, used in most examples, turns damage into fewer samples;
- tar has checksums for its headers alone; a file that ends between two samples, or whose next header is damaged, simply
  ends: here an archive must end as archives do and hold exactly the samples that were dealt to it;
- the writer stamps the time of day, so that no two files agree (fixed here), and ``tarfile`` keeps what it has written
  in a list, 400 bytes a sample (cleared here).

What it does not show: reading over a network, for which WebDataset's other defaults are made.
"""

from __future__ import annotations

import lzma
import os
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from webdataset.tariterators import group_by_keys, tar_file_expander
from webdataset.writer import TarWriter

from feedrate.formats import Sample
from feedrate.formats._images import Append, Files, RawFiles, ShardedStream, pack_shards

REQUIRES: dict[str, str] = {"webdataset": "webdataset", "PIL": "pillow", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {
    "container": "tar",
    "stores": "png",
    "holds": ("images", "files"),
    "access": ("sequential",),
    "knobs": ("decoder",),
}

_END = bytes(2 * tarfile.BLOCKSIZE)
"""With which an archive ends; all of it is filled up to whole records with more zeros."""
_DAMAGE = (tarfile.TarError, ValueError, EOFError, zlib.error, lzma.LZMAError)
"""What comes of a damaged tar file, the last two because its begin may look like a compressed one."""


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples as PNG files into tar files."""
    pack_shards(samples, root, "tar", _shard)


def _names(kinds: Sequence[str]) -> list[str]:
    """Name the files of a sample's fields, without their key."""
    return [f"{field}.{kind}" for field, kind in enumerate(kinds)]


@contextmanager
def _shard(path: Path, kinds: Sequence[str]) -> Iterator[Append]:
    with path.open("wb") as file, closing(TarWriter(file, encoder=False, compress=False, mtime=0.0)) as tar:

        def append(index: int, files: Files) -> None:
            named = zip(_names(kinds), files, strict=True)
            tar.write({"__key__": f"{index:08d}", **dict(named)})
            tar.tarstream.members.clear()

        yield append


class TarStream(ShardedStream):
    """Streams tar files."""

    kind = "tar"

    def read_shard(self, shard: int) -> Iterator[RawFiles]:
        """Read the samples of a file."""
        fields = _names(self.kinds)
        with self.shard_path(shard).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size % tarfile.RECORDSIZE or os.pread(file.fileno(), len(_END), max(0, size - len(_END))) != _END:
                raise ValueError("truncated")
            samples = group_by_keys(tar_file_expander([{"url": file.name, "stream": file}]))
            try:
                for sample in samples:
                    if lacking := [name for name in fields if name not in sample]:
                        raise ValueError(f"sample {sample['__key__']} lacks {', '.join(lacking)}")
                    yield int(sample["__key__"]), [sample[name] for name in fields]
            except _DAMAGE as error:  # the library appends the stream and the address to its arguments
                raise ValueError(str(error.args[0]).partition(" @ ")[0]) from error


open = TarStream
