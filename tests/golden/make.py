"""Writes the golden files of the schema version at hand: made-up runs, and the list of what their files may hold.

``python tests/golden/make.py`` from the repository's root. Files of earlier versions were written by the feedrate of
their time and are never written again.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent
ROOT = GOLDEN.parents[1]


def holding() -> dict[str, Any]:
    """Say what files of this version hold: the columns of each table with their types, and the manifest's fields."""
    from feedrate.schema.columns import NEEDS_FEEDRATE, SCHEMA_VERSION, TABLES
    from feedrate.store.manifest import RunManifest

    schema = RunManifest.model_json_schema()
    nouns = {"RunManifest": schema, **schema["$defs"]}
    return {
        "schema_version": SCHEMA_VERSION,
        "needs_feedrate": NEEDS_FEEDRATE,
        "tables": {name: {column.name: column.dtype for column in columns} for name, columns in TABLES.items()},
        "manifest": {name: sorted(noun.get("properties", {})) for name, noun in sorted(nouns.items())},
    }


def main() -> None:
    """Write ``v<version>/``."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    import fake_run
    from fake_kind import Fake

    held = holding()
    folder = GOLDEN / f"v{held['schema_version']}"
    shutil.rmtree(folder, ignore_errors=True)
    run_id = f"2026010{held['schema_version']}T030405Z-090{held['schema_version']}"
    fake_run.write(folder, Fake(run_id=run_id, blocks=2, batches=(8, 32), workers=(0, 2)))
    (folder / "holds.json").write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
