"""Identity of cells."""

from __future__ import annotations

import pytest

from feedrate.schema.axes import AXES, BY_NAME, applicable, cell_id

DEFAULTS = {axis.name: axis.default for axis in AXES}


@pytest.mark.parametrize(
    ("changed", "device", "expected"),
    [
        ({}, "cpu", "44136fa355b3"),
        ({"num_workers": 2}, "cpu", "045b494df064"),
        ({"mode": "load", "storage_format": "lmdb"}, "cpu", "592c4e5a010c"),
        ({"workload": "div2k", "pin_memory": True}, "cuda", "15a7e021cbc1"),
    ],
)
def test_published_ids_never_change(changed: dict, device: str, expected: str) -> None:
    """A cell keeps its id for ever, whatever axes are added: these stand in published results."""
    cell, _ = applicable(DEFAULTS | changed, device)
    assert cell_id(cell) == expected


def test_not_applicable_equals_default() -> None:
    """An axis that does not apply and one at its default give the same id."""
    on_cpu, reasons = applicable(DEFAULTS, "cpu")
    on_cuda, _ = applicable(DEFAULTS, "cuda")
    assert "pin_memory" in reasons
    assert "pin_memory" in on_cuda
    assert cell_id(on_cpu) == cell_id(on_cuda)


@pytest.mark.parametrize(
    ("changed", "absent"),
    [
        ({"num_workers": 0}, {"prefetch_factor"}),
        ({"mode": "load"}, {"step", "step_ms", "model", "non_blocking"}),
        ({"mode": "compute"}, {"storage_format", "num_workers", "n_samples", "step", "pin_memory"}),
        ({"step": "emulated"}, {"model"}),
        ({"workload": "synthetic"}, {"scale"}),
        ({"workload": "div2k"}, {"read_us", "decode_us"}),
        ({"mode": "load"}, {"prefetcher", "d2h", "create_on", "launch_blocking", "timing"}),
        ({"mode": "compute"}, {"prefetcher", "parallel"}),
        ({"d2h": "none"}, {"d2h_every"}),
    ],
)
def test_what_cannot_matter_is_not_applicable(changed: dict, absent: set) -> None:
    """An axis that cannot change a trial is left out of its cell, with a reason."""
    cell, reasons = applicable(DEFAULTS | changed, "cuda")
    assert absent <= set(reasons)
    assert not absent & set(cell)
    assert set(cell) | set(reasons) == set(BY_NAME)


def test_every_axis_is_documented() -> None:
    """Each axis has a sentence, and a default among its choices."""
    for axis in AXES:
        assert axis.doc.endswith("."), axis.name
        assert axis.choices is None or axis.default in axis.choices(), axis.name
