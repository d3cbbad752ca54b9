"""matrix.yaml: what is read, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from feedrate.plan import matrix, request
from feedrate.plan.options import SweepOptions
from feedrate.schema.errors import InputError

GOOD = """
version: 1
protocol: {window_s: 0.2}
suites:
  loader:
    - {workload: [synthetic], num_workers: [0, 2]}
    - {device: cuda, workload: synthetic, pin_memory: [false, true]}
profiles:
  quick: {budget: 4m}
  small: {suites: {loader: {batch_size: [8]}}}
  other: {suites: {loader: [{mode: load}]}, protocol: {min_steps: 3}}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "matrix.yaml"
    path.write_text(text)
    return path


def test_profiles_change_slices(tmp_path: Path) -> None:
    """A profile's mapping changes every slice, its list replaces them, and no mention keeps them."""
    path = write(tmp_path, GOOD)
    assert [dict(s.axes) for s in matrix.load(path).slices] == [
        {"workload": ("synthetic",), "num_workers": (0, 2)},
        {"workload": ("synthetic",), "pin_memory": (False, True)},
    ]
    assert all(s.axes["batch_size"] == (8,) for s in matrix.load(path, "small").slices)
    other = matrix.load(path, "other")
    assert [dict(s.axes) for s in other.slices] == [{"mode": ("load",)}]
    assert (other.protocol.min_steps, other.protocol.window_s) == (3, 0.2)


def test_budget_comes_from_profile_or_option(tmp_path: Path) -> None:
    """The option wins over the profile; neither is no limit."""
    path = write(tmp_path, GOOD)
    assert matrix.load(path).budget_s == 240
    assert matrix.load(path, budget="1h30m").budget_s == 5400
    assert matrix.load(path, "small").budget_s is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("num_workers: [0, 2]", "num_worker: [0]", ["suites.loader[0]", "'num_worker'", "did you mean 'num_workers'"]),
        (
            "workload: [synthetic]",
            "storage_format: [pngg]",
            ["suites.loader[0].storage_format", "unknown format 'pngg'", "did you mean 'png'"],
        ),
        ("num_workers: [0, 2]", "num_workers: [two]", ["suites.loader[0].num_workers", "'two'", "a whole number"]),
        ("num_workers: [0, 2]", "num_workers: [-1]", ["at least 0"]),
        ("num_workers: [0, 2]", "num_workers: [true]", ["True", "a whole number"]),
        ("num_workers: [0, 2]", "num_workers: [0, 0]", ["each value once"]),
        ("num_workers: [0, 2]", "num_workers: []", ["no values"]),
        ("num_workers: [0, 2]", "step_ms: [.inf]", ["inf"]),
        ("loader:", "loadr:", ["suites", "'loadr'", "did you mean 'loader'"]),
        ("version: 1", "version: 7", ["version", "7", "expected 1"]),
        ("version: 1", "versio: 1", ["'versio'", "did you mean 'version'"]),
        ("window_s: 0.2", "window_s: 0", ["protocol.window_s", "above 0"]),
        ("window_s: 0.2", "windows: 2", ["protocol", "did you mean 'window_s'"]),
        ("window_s: 0.2", "blocks: [9, 3]", ["protocol.blocks", "[fewest, most]"]),
        ("window_s: 0.2", "ci_target_pct: 0", ["protocol.ci_target_pct", "above 0"]),
        ("window_s: 0.2", "ci_target_pct: -3", ["protocol.ci_target_pct", "above 0"]),
        ("window_s: 0.2", "control_every: 0.5", ["protocol.control_every", "whole number"]),
        ("window_s: 0.2", "timeout_s: 0.5", ["timeout_s", "more than"]),
        ("budget: 4m", "budget: soon", ["profiles.quick.budget", "'soon'", "90s, 4m"]),
        ("device: cuda", "device: tpu", ["suites.loader[1].device", "cpu, cuda"]),
        ("num_workers: [0, 2]", "num_workers: [0, 2", ["line ", "column ", "not YAML"]),
        ("num_workers: [0, 2]", "workload: div2k", ["line 6", "twice"]),
        ("num_workers: [0, 2]", "? [a, b]\n       : 3", ["line ", "a key must be a name"]),
        ("window_s: 0.2", "window_s: .nan", ["protocol.window_s", "nan"]),
    ],
)
def test_refusals_say_where_what_and_what_was_expected(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    """Whatever is wrong, the message names file, place, what stood there, what was expected, the nearest name."""
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        matrix.load(path)
    for word in [str(path), *words]:
        assert word in str(caught.value)


def test_a_protocol_may_differ_by_device(tmp_path: Path) -> None:
    """What a protocol says for one device alone holds there, and a profile's word goes over it."""
    text = GOOD.replace("{window_s: 0.2}", "{window_s: 0.2, cuda: {window_s: 3}}")
    path = write(tmp_path, text)
    assert matrix.load(path, device="cpu").protocol.window_s == 0.2
    assert matrix.load(path, device="cuda").protocol.window_s == 3
    path = write(tmp_path, text.replace("min_steps: 3", "window_s: 1, cuda: {min_steps: 9}"))
    other = matrix.load(path, "other", device="cuda").protocol
    assert (other.window_s, other.min_steps) == (1, 9)


def test_a_run_is_not_resumed_where_tf32_was_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's variable, which no program overrules, makes another run; PyTorch's, which a trial does, makes none."""
    path = write(tmp_path, GOOD)
    planned = request.make(SweepOptions(matrix=path, data_root=tmp_path, results=tmp_path / "results"))
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
