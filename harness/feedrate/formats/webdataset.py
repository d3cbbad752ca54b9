"""WebDataset: tar files of PNG files, written and read with the ``webdataset`` library.

A sample is the run of files with one key: ``00000012.0.png``, ``00000012.1.png``. A tar file has no index, so samples
can only be streamed; it can be read over anything that gives bytes, which is what the format is for.

Pitfalls, each handled here by using the library's reader of tar files without the pipeline around it:

- the pipeline ``WebDataset`` shuffles shards only if asked but warns if not, divides them among workers by itself (a
  worker without a shard is an error), drops nodes' shares, and opens addresses through ``gopen``, to which a path
  with a colon is an address;
- a handler such as ``warn_and_continue``, used in most examples, turns damage into fewer samples;
- tar has checksums for its headers and none for the data; a file that ends between two samples, or whose next header is
  damaged, simply ends: here an archive must end as archives do and hold exactly the samples that were dealt to it, and
  PNG's own CRCs guard the data;
- samples are grouped by everything before the *first* dot of the file's name;
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
from pathlib import Path

from webdataset.tariterators import group_by_keys, tar_file_expander
from webdataset.writer import TarWriter

from feedrate.formats import ReadOptions, Sample, Stream
from feedrate.formats._encoded import EncodedRaw
from feedrate.formats._encoding import PNG, File, encoded
from feedrate.formats._shards import ShardedStream, deal, shard_path

REQUIRES: dict[str, str] = {"webdataset": "webdataset", "PIL": "pillow", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "tar", "stores": "png", "access": ("sequential",), "knobs": ("decoder",)}

_END = bytes(2 * tarfile.BLOCKSIZE)
"""With which an archive ends; all of it is filled up to whole records with more zeros."""
_DAMAGE = (tarfile.TarError, ValueError, EOFError, zlib.error, lzma.LZMAError)
"""What comes of a damaged tar file, the last two because its begin may look like a compressed one."""


class _TarShard:
    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._tar = TarWriter(self._file, encoder=False, compress=False, mtime=0.0)

    def write(self, index: int, files: Sequence[File]) -> None:
        """Append a sample."""
        fields = {f"{field}.{file.kind}": file.data for field, file in enumerate(files)}
        self._tar.write({"__key__": f"{index:08d}", **fields})
        self._tar.tarstream.members.clear()

    def close(self) -> None:
        """Write the end of the archive and close its file."""
        with self._file:
            self._tar.close()


def pack(samples: Iterable[Sample], root: Path) -> None:
    """Write samples as PNG files into tar files.

    Args:
        samples: tuples of uint8 arrays, height × width × channels (1, 3 or 4), all with the same number of fields.
        root: an empty folder.

    Raises:
        InputError: a field has another number of channels.
        OSError: a file cannot be written.
    """
    deal(encoded(samples, PNG), lambda shard: _TarShard(shard_path(root, shard, "tar")))


def open(root: Path, options: ReadOptions) -> Stream:  # the name is the plug-in contract's
    """Stream what ``pack`` wrote into ``root``.

    Raises:
        DataError: there is no readable manifest.
        InputError: the decoder is unknown, not installed, or decodes no PNG.
    """
    return _TarStream(root, options)


class _TarStream(ShardedStream):
    codec = PNG
    kind = "tar"

    def _read(self, path: Path) -> Iterator[EncodedRaw]:
        fields = [f"{field}.png" for field in range(len(self.manifest.shapes))]
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size % tarfile.RECORDSIZE or os.pread(file.fileno(), len(_END), max(0, size - len(_END))) != _END:
                raise ValueError("truncated")
            samples = group_by_keys(tar_file_expander([{"url": path.name, "stream": file}]))
            try:
                for sample in samples:
                    if lacking := [name for name in fields if name not in sample]:
                        raise ValueError(f"sample {sample['__key__']} lacks {', '.join(lacking)}")
                    yield int(sample["__key__"]), [sample[name] for name in fields]
            except _DAMAGE as error:  # the library appends the stream and the address to its arguments
                raise ValueError(str(error.args[0]).partition(" @ ")[0]) from error
