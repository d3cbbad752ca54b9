"""Loaded by every Python that starts below ``feedrate run``, before the script's own imports.

It must cost nothing where there is no PyTorch: a finder waits for ``torch.utils.data`` and loads ``_feedrate_hook``
only then. The folder leaves ``sys.path`` again, and a ``sitecustomize`` of the environment's own is loaded as it would
have been.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_PATCHED = frozenset(
    (
        "grain._src.python.data_loader",
        "grain._src.python.dataset.dataset",
        "nvidia.dali.plugin.pytorch",
        "safetensors.torch",
        "spdl.pipeline._pipeline",
        "torch._tensor",
        "torch.autograd",
        "torch.optim.optimizer",
        "torch.serialization",
        "torch.utils.data.dataloader",
        "torch.utils.data._utils.fetch",
        "torch.utils.data._utils.worker",
        "torchdata.stateful_dataloader.stateful_dataloader",
        "torchdata.stateful_dataloader.worker",
    )
)
_OWN = {name: f"{name}.py" for name in map("_feedrate_{}".format, ("log", "step", "worker", "loop", "hook", "tune"))}
_OWN["feedrate"] = "feedrate_watch.py"
"""Modules that lie here, to their files: a script finds ``feedrate.watch`` where feedrate is not installed, too."""


class _Finder:
    """Patches modules of PyTorch and of other loaders as they are imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _PATCHED and name not in _OWN:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)  # six 1.15's has none
            spec = find(name, path, target) if find and finder is not self else None
            if spec is not None and spec.loader is not None:
                return _patching(spec) if name in _PATCHED else spec
        replacement = _OWN.get(name)
        return importlib.util.spec_from_file_location(name, os.path.join(_HERE, replacement)) if replacement else None


def _patching(spec: ModuleSpec) -> ModuleSpec:
    """Have a module patched when it has been executed."""
    loader: Any = spec.loader
    execute = loader.exec_module

    def patched(module: ModuleType) -> None:
        execute(module)
        try:
            import _feedrate_hook
        except Exception:  # noqa: BLE001 - the script goes on unobserved
            return
        _feedrate_hook.patch(module)

    loader.exec_module = patched
    return spec


def _chain() -> None:
    """Run the environment's own ``sitecustomize``, which this one hides."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
if os.environ.get("FEEDRATE_RUN"):
    try:
        seen = os.path.join(os.environ["FEEDRATE_RUN"], f"{os.getpid()}.seen")
        os.close(os.open(seen, os.O_CREAT | os.O_WRONLY, 0o600))
        sys.meta_path.insert(0, _Finder())
    except OSError:
        pass  # the folder is gone: a process that outlives feedrate run goes on unobserved
_chain()
