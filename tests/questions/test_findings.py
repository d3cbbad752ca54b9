"""Sentences are true and read well whatever was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import pytest

from feedrate.pages import tasks
from feedrate.pages.runs import RunView
from feedrate.pages.verdicts import ClaimResult, Place, Verdicts, load_verdicts
from feedrate.plan import suite
from feedrate.questions.home.findings import STORED, Sentence, findings
from feedrate.schema.metrics import METRICS

Show = Callable[..., RunView]
FIXED = "This task comes first in a fixed order, whatever it gains."
MACHINE = "Example 9000 8-Core, 16 cores"
NOTHING = load_verdicts([])
RATIO = "0.800× (0.700–0.900, n = 6)"
KNOWN = {"ratio": 0.8, "lo": 0.7, "hi": 0.9, "n": 6, "worst": float("nan")}
EFFECTS = [name for name, (_, claim) in suite.claims().items() if claim.effect]
FACTS = [name for name, (_, claim) in suite.claims().items() if claim.facts]


@pytest.fixture(scope="module")
def tested(show: Show) -> RunView:
    """A run that has the cells of the claims on storage formats."""
    return show(suites=("claims",), claims=("storage",), blocks=2, fails="none")


def telling(view: RunView, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, ClaimResult]:
    """What a run says of claims, by id."""
    found = {}
    for name, row in rows.items():
        claim, device = suite.claims()[name][1], view.manifest.device
        cases = [{"role": "case"}] * len(claim.effect.cases) if claim.effect else []
        found[name] = ClaimResult(claim.on(device), (view,), device, {**KNOWN, **row}, cases)
    return found


def told(*places: dict[str, ClaimResult]) -> Verdicts:
    """The verdicts of several places, a claim that a place lacks not testable there."""
    everything = {name: each for place in places for name, each in place.items()}
    firsts = [next(iter(place.values())) for place in places]
    return Verdicts(
        {name: suite.claims()[name] for name in everything},
        tuple(Place(first.view, first.device, False) for first in firsts),
        {
            name: tuple(
                place.get(name) or ClaimResult(each.claim, first.views, first.device, {"verdict": "not testable here"})
                for place, first in zip(places, firsts, strict=True)
            )
            for name, each in everything.items()
        },
        {},
    )


def said(*places: dict[str, ClaimResult]) -> list[Sentence]:
    return findings([], told(*places), [])


def changed(view: RunView, gpu: bool = False, **manifest: Any) -> RunView:
    """The same run, with another manifest."""
    other = RunView(view.run)
    machine = view.manifest.machine
    if gpu:
        machine = machine.model_copy(update={"gpu_name": "Example GPU 80", "gpu_count": 1})
    other.manifest = view.manifest.model_copy(update={"machine": machine, **manifest})
    return other


@pytest.mark.slow
def test_every_sentence_names_its_machine(show: Show, tested: RunView, fake_run: ModuleType) -> None:
    """Sentences stand side by side and are of several machines: each begins with its own."""
    rows = {STORED: {"verdict": "confirmed"}, EFFECTS[0]: {"verdict": "refuted"}}
    trial = fake_run.witnessed(1_002_000_000)
    benches = [fake_run.bench(day=day, cores=2 * day, witnessed=(trial,)) for day in (1, 2)]
    found = findings([show(fails="none", cores=8)], told(telling(tested, rows)), benches)
    assert [each.text.partition(":")[0] for each in found] == [
        "On Example 9000 8-Core, 8 cores",
        *[f"On {MACHINE}"] * 3,
        "On Example 9000 8-Core, 4 cores",
    ]
    assert found[-1].text.endswith(
        ": over 1 trial of 1 planted cell, the throughput that feedrate reports is within 0.20\u00a0% of an external "
        "clock (median +0.20\u00a0%)."
    )
    assert found[-1].source == "record 20260102T000000Z"


def test_what_no_record_tells_is_left_out(show: Show) -> None:
    """Without results nothing is said; a run without claims says nothing of them."""
    assert findings([], NOTHING, []) == []
    view = show(fails="none")
    (only,) = findings([view], NOTHING, [])
    assert only.source == f"run {view.manifest.run_id} (grade {view.grade.letter})"


@pytest.mark.slow
def test_a_run_without_an_interval_is_passed_over(show: Show) -> None:
    """One block proves nothing: an older run that has more tells its gain, in the words of the answer on its pages."""
    newest = show(blocks=1, fails="none", run_id="20270101T000000Z-newest")
    older = show(fails="none")
    assert findings([newest], NOTHING, []) == []
    (only,) = findings([newest, older], NOTHING, [])
    assert only.made_from == (older.manifest.run_id,)
    assert only.page == older.page
    gain = only.text.removeprefix(f"On {MACHINE}: ")
    assert gain.startswith("for an emulated step of 10 ms on div2k_standin at 64 px, with 2 workers, ")
    assert gain.removesuffix(f" {FIXED}")[1:] in tasks.answer(older.headlines)


@pytest.mark.slow
def test_the_task_is_not_chosen_for_its_gain(show: Show) -> None:
    """A CPU's sentence is of its first emulated step, an accelerator's of training, whatever the others gain.

    Where the gain is not clear the sentence says so.
    """
    view = changed(show(fails="none"))
    rows = view.headlines.copy()
    emulated = rows["kind"].eq("emulated")
    rows["gain"] = [gain | {"ratio": 9.0, "lo": 8.0, "hi": 10.0} for gain in rows["gain"]]
    small = {"ratio": 1.0, "lo": 0.9, "hi": 1.1, "verdict": "inconclusive"}
    first = rows.index[emulated][0]
    rows.at[first, "gain"] = rows.at[first, "gain"] | small
    vars(view)["headlines"] = rows
    (only,) = findings([view], NOTHING, [])
    assert only.text == (
        f"On {MACHINE}: for an emulated step of 10 ms on div2k_standin at 64 px, no loader setting is clearly faster "
        f"than PyTorch’s defaults, at any format and batch size. {FIXED}"
    )
    on_gpu = changed(view, device="cuda")
    vars(on_gpu)["headlines"] = rows
    assert "for real training on" in findings([on_gpu], NOTHING, [])[0].text


@pytest.mark.parametrize(
    ("verdict", "end"),
    [
        ("confirmed", "so how samples are stored, pixels and container together, matters."),
        ("depends", "which depends on the setting."),
        ("refuted", "so storing decoded pixels does not pay."),
        ("no difference", "which makes no difference."),
        ("inconclusive", "which may be chance."),
    ],
)
def test_what_is_said_of_storage_follows_its_verdict(tested: RunView, verdict: str, end: str) -> None:
    """The same ratio means something else by its verdict; the samples are named, a stand-in by its own name."""
    text = said(telling(tested, {STORED: {"verdict": verdict, "worst": 0.75}}))[0].text
    assert text == (
        f"On {MACHINE}: before an emulated step of 10 ms, training on decoded pixels in LMDB is 0.800× "
        "(0.700–0.900, n = 6) as fast as on PNG files (div2k_standin, averaged over 2 settings, at worst 0.75×), "
        f"{end}"
    )


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (["confirmed"], "of 1 tested sentence on faster training, 1 holds."),
        (["refuted"] * 2, "of 2 tested sentences on faster training, 2 do not hold."),
        (["confirmed", "refuted"], "of 2 tested sentences on faster training, 1 holds and 1 does not hold."),
        (["no difference", "inconclusive"], "1 makes no difference and 1 is open."),
        (["depends"] * 2 + ["refuted"], "2 depend on the setting and 1 does not hold."),
        (["confirmed"] * 2 + ["no difference"] * 2 + ["inconclusive"] * 2, "2 hold, 2 make no difference and 2 are op"),
    ],
)
def test_verdicts_are_counted_in_good_english(show: Show, found: list[str], text: str) -> None:
    """One or several, with or without any that holds; the runs have no cells, so that no samples are named."""
    rows = {name: {"verdict": verdict} for name, verdict in zip(EFFECTS, found, strict=False)}
    assert text in said(telling(show(fails="none"), rows))[0].text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "lz4-in-lmdb",
            f"lmdb_lz4 is {RATIO} as fast as storage_format=lmdb, averaged over 4 settings, at worst 0.50×)",
        ),
        ("fewer-workers-small-batch", f"with batch_size=128 is {RATIO} that with batch_size=8, at worst 0.50×)"),
        ("totensor-transpose", "the source’s figure of 0.800, averaged over 3 settings, at worst 0.50×)"),
    ],
)
def test_a_refuted_claim_says_what_its_ratio_is_of(tested: RunView, name: str, text: str) -> None:
    """A bare 0.80× tells nobody of what, and a mean hides its worst case."""
    _, listed = said(telling(tested, {name: {"verdict": "refuted", "worst": 0.5}}))
    says = suite.claims()[name][1].says.rstrip(".")
    assert listed.text.startswith(f"On {MACHINE}: what does not hold is “{says}” (")
    assert text in listed.text


@pytest.mark.parametrize(("checks", "text"), [(1, "1 check saw otherwise"), (6, "6 checks saw otherwise")])
def test_a_refuted_fact_says_how_often_it_was_looked_at(tested: RunView, checks: int, text: str) -> None:
    """A fact has no ratio, but its n."""
    _, listed = said(telling(tested, {FACTS[0]: {"verdict": "refuted", "n": checks}}))
    assert listed.text.endswith(f"({text}).")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_claim_can_be_refuted_in_words(tested: RunView, device: str) -> None:
    """Whatever a claim compares, its ratio has a noun, an interval, and n."""
    view = changed(tested, device=device)
    for name in EFFECTS:
        _, listed = said(telling(view, {name: {"verdict": "refuted"}}))[-2:]
        effect = suite.claims()[name][1].on(device).effect
        assert effect is not None
        measured, metric = listed.text.rpartition("” (")[2], METRICS[effect.metric]
        if effect.against:
            assert f" is {RATIO} that with " in measured
        elif effect.along:
            assert f" changes by a factor of {RATIO} for every doubling of {effect.along}" in measured
        elif effect.level:
            assert f"{metric.noun} is {RATIO} the source’s figure" in measured
        else:
            assert f" is {RATIO} {'as fast as' if metric.rate else 'what it is with'} " in measured
