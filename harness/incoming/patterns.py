"""What texts of a run look like that are names or times: regular expressions that Python's and Arrow's engine share."""

from __future__ import annotations

HEX = "[0-9a-f]"
RUN_ID = "[0-9]{8}T[0-9]{6}Z-[0-9a-z]{4}"
"""Date and time of its beginning, and four characters that tell it from others of that second."""
MACHINE_ID = "[a-z0-9]+(?:-[a-z0-9]+){1,30}"
CELL_ID = HEX + "{12}"
DATA_HASH = HEX + "{16}"
NAME = "[a-z][a-z0-9_]{0,63}"
"""Of a suite, an axis, a storage format."""
MOMENT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|\+00:00)"
"""A time in UTC. As texts such times have the order that they have as times, to the second."""
