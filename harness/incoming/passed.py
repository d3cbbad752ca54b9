"""A memory of the runs that passed under today's rules, so that a site's next build need not look at them again."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from harness.registry import ROOT

_RULES_LIE_IN = ("incoming", "axes", "formats", "workloads", "trial/checks")
_RULES_ARE = (
    *("__init__.py", "errors.py", "linux.py", "machine.py", "hardware.py", "manifest.py", "migration.py", "records.py"),
    *("redaction.py", "registry.py", "storage_device.py", "traits.py", "window.py"),
)
_READERS = ("numpy", "pyarrow", "pydantic", "pydantic-core")
"""Libraries that decide what a file holds."""


class Passed:
    """Hashes of runs that passed under today's rules."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._rules = _fingerprint() if path else ""
        self.before: frozenset[str] = frozenset()
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            held = json.loads(path.read_bytes()) if path else {}
            self.before = frozenset(held["passed"]) if held["rules"] == self._rules else frozenset()

    def write(self, passed: Iterable[str]) -> None:
        """Remember those of today; a folder that cannot be written remembers nothing."""
        if self._path is None:
            return
        text = json.dumps({"rules": self._rules, "passed": sorted(set(passed))})
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self._path.parent, delete=False, encoding="ascii") as file:
                file.write(text)
            Path(file.name).replace(self._path)


def _fingerprint() -> str:
    """Hash whatever the rules depend on."""
    whole = hashlib.sha256(repr([version(name) for name in _READERS]).encode())
    for path in rules_lie_in():
        whole.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


def rules_lie_in() -> list[Path]:
    """List the files of feedrate that a verdict depends on."""
    harness = ROOT / "harness"
    folders = [path for folder in _RULES_LIE_IN for path in sorted((harness / folder).rglob("*.py"))]
    return [*(harness / name for name in _RULES_ARE), *folders]
