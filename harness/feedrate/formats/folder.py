"""A folder of files as they are, such as photographs: what torchvision's ``ImageFolder`` reads.

Nothing is encoded: a sample is a file of any size, copied byte for byte, and beside it a small one with its class and
size. What such a file is decoded with is the workload's part.

What it does not show: a tree of a folder for each class, with names of its own, and a listing of it at the start.
"""

from __future__ import annotations

from functools import partial

from feedrate.formats._images import PNG, FolderReader, write_files

REQUIRES: dict[str, str] = {"PIL": "pillow", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "files", "stores": "files", "holds": ("files",)}

pack = partial(write_files, codec=PNG)
open = FolderReader
