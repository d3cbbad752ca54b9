"""A folder of PNG files, one a field of a sample: what most people have.

Names are derived from the index, as listing a folder of many files costs seconds on a network disk; at most 1000 lie in
one, as some file systems slow down beyond that.

Pitfall: decoding costs 30 to 100 times what copying raw pixels costs, and depends on the row filter that the encoder
chose: pixels without spatial structure decode two to five times as fast as a photograph, and give a wrong answer.
"""

from __future__ import annotations

from functools import partial

from feedrate.formats._images import PNG, FolderReader, write_files

REQUIRES: dict[str, str] = {"PIL": "pillow", "numpy": "numpy"}
VERSION: int = 1
TRAITS: dict[str, object] = {"container": "files", "stores": "png", "knobs": ("decoder",)}

pack = partial(write_files, codec=PNG)
open = FolderReader
