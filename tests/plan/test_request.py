"""What tells one plan here from another."""

from __future__ import annotations

from pathlib import Path

import pytest

from feedrate.plan import request as plan_local

MATRIX = """
version: 1
suites: {loader: [{mode: compute, workload: synthetic}]}
profiles: {quick: {}}
"""


def test_a_run_is_not_resumed_where_tf32_was_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's variable, which no program overrules, makes another run; PyTorch's, which a trial does, makes none."""
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    planned = plan_local.make(
        plan_local.Options(tmp_path / "matrix.yaml", data_root=tmp_path, results=tmp_path / "results")
    )
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    monkeypatch.delenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", raising=False)
    plain = planned.key()
    monkeypatch.setenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1")
    assert planned.key() == plain
    keys = {plain}
    for value in ("0", "1"):
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", value)
        keys.add(planned.key())
    assert len(keys) == 3
