"""A claim: what it is made of, and what is refused."""

from __future__ import annotations

import pytest

from feedrate.plan.claim import Claim, Effect, Part, cell_on, change, pair, untestable, validate
from feedrate.plan.suite import slices_of
from feedrate.schema.errors import InputError

WORKERS = pair({"num_workers": 0}, {"num_workers": 2}, {"mode": "load"})


def claim(effect: Effect | None = WORKERS, **fields: object) -> Claim:
    """A claim that can be asked, but for what a test changes."""
    said = {"says": "It is so.", "sources": ("IO",), "design": "It is tested.", "not_shown": "The rest."}
    return Claim("one", effect=effect, **{**said, **fields})  # type: ignore[arg-type]


LOAD = {"mode": "load"}
NONE, TWO = {"num_workers": 0}, {"num_workers": 2}
ODD_METRIC = pair(NONE, TWO, LOAD, metric="througput")
PINNING = pair({"pin_memory": False}, {"pin_memory": True}, {"mode": "train"})
EITHER = ["expected either an effect or facts"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            claim(pair({"num_worker": 0}, {"num_worker": 2}, LOAD)),
            ["unknown axis 'num_worker'; expected one of ", "(did you mean 'num_workers'?)"],
        ),
        (claim(pair(NONE, TWO, {**LOAD, "storage": "png"})), ["unknown axis 'storage'"]),
        (claim(pair(NONE, TWO, LOAD, against=[{"storage": "png"}])), ["unknown axis 'storage'"]),
        (claim(None, facts=({"chek": "next_epoch"},)), ["unknown axis 'chek'"]),
        (
            claim(change("storage_format", "png", "lmbd", LOAD)),
            ["storage_format: unknown format 'lmbd'; expected one of ", "(did you mean 'lmdb'?)"],
        ),
        (claim(change("num_workers", 0, "2", LOAD)), ["num_workers: got '2'; expected a whole number"]),
        (claim(None, facts=({"check": "next_epok"},)), ["check: unknown check 'next_epok'; expected one of "]),
        (claim(ODD_METRIC), ["unknown metric 'througput'; expected one of ", "(did you mean 'throughput'?)"]),
        (claim(asides={"beside it": ODD_METRIC}), ["unknown metric 'througput'"]),
        (
            claim(sources=("BOT", "TIP")),
            [
                "unknown source 'TIP'; expected one of AIDA, API, BOT, IO, LMDB, LitData, SPDL, TIPS, TurboLoader, "
                "field (did you mean 'TIPS'?)"
            ],
        ),
        (
            claim(pair(TWO, TWO, LOAD)),
            ["num_workers=2 and num_workers=2 are the same cell with mode=load on cpu; expected an A that differs"],
        ),
        (
            claim(change("prefetch_factor", 1, 8, LOAD)),
            ["prefetch_factor=1 and prefetch_factor=8 are the same cell with mode=load on cpu"],
        ),
        (claim(pair(NONE, TWO)), ["got 0 cases of 2 sides; expected one of two"]),
        (claim(Effect(((1.0, TWO),), (LOAD,))), ["got 1 cases of 1 sides; expected one of two"]),
        (claim(None), EITHER),
        (claim(facts=({"check": "next_epoch"},)), EITHER),
    ],
)
def test_what_cannot_be_tested_is_refused(wrong: Claim, words: list[str]) -> None:
    """Names and values, wherever they stand, sides that are one cell, no case: the message names file and claim."""
    with pytest.raises(InputError) as caught:
        validate(wrong, "suites/x.py")
    assert str(caught.value).startswith("suites/x.py: claim one: ")
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("workload", "photographs", "found"),
    [
        *(("div2k", photographs, photographs) for photographs in ("div2k", "div2k_standin", "folder")),
        ("synthetic", "folder", "synthetic"),
        ("imagefolder", "div2k", "imagefolder_standin"),
        ("imagefolder", "div2k_standin", "imagefolder_standin"),
        ("imagefolder", "folder", "imagefolder"),
    ],
)
def test_what_is_there_stands_in_for_a_user_s_images(workload: str, photographs: str, found: str) -> None:
    """A claim that names div2k or image files has its cells on those that a run has."""
    assert cell_on({"workload": workload}, "cpu", photographs)[0]["workload"] == found


@pytest.mark.parametrize(
    ("one", "device", "reason"),
    [
        (claim(), "cpu", None),
        (claim(PINNING), "cpu", "pin_memory: no CUDA device here"),
        (claim(PINNING, needs="cuda"), "cpu", "needs a CUDA device"),
        (claim(PINNING, needs="cuda"), "cuda", None),
        (claim(PINNING, needs="gpus"), "cpu", "needs two CUDA devices"),
        (claim(needs="disks"), "cuda", "--data-root"),
        (claim(needs="machines"), "cpu", "several machines"),
    ],
)
def test_why_a_claim_cannot_be_tested(one: Claim, device: str, reason: str | None) -> None:
    """The reason is a missing device or an axis that does not apply, never a default value."""
    found = untestable(one, device)
    assert found is None if reason is None else reason in str(found)


def test_a_cuda_device_may_have_effects_of_its_own() -> None:
    """Effects of CPU and CUDA are planned and judged where they belong."""
    large, pinned = pair(NONE, {"num_workers": 8}, LOAD), Part("pinning, too", PINNING, device="cuda")
    both = claim(on_cuda=large, also=(Part("it is slow", pair(NONE, TWO, LOAD)), pinned))
    validate(both, "suites/x.py")
    workers = [(part.get("device"), part["num_workers"]) for part in slices_of([both]) if "pin_memory" not in part]
    assert workers == [("cpu", 0), ("cpu", 2), ("cuda", 0), ("cuda", 8), (None, 0), (None, 2)]
    assert [part["device"] for part in slices_of([both]) if "pin_memory" in part] == ["cuda", "cuda"]
    assert (both.on("cpu").effect, both.on("cuda").effect) == (WORKERS, large)
    assert [[part.label for part in both.on(device).also] for device in ("cpu", "cuda")] == [
        ["it is slow"],
        ["it is slow", "pinning, too"],
    ]
