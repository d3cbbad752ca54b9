"""The Claims page: which run speaks, what a claim's section says, what is left out, and a suite's own list."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import reading

from feedrate.analysis.claims import NOT_TESTABLE
from feedrate.analysis.sentences import estimate, worst
from feedrate.pages import descriptions
from feedrate.pages.runs import RunView
from feedrate.pages.verdicts import Verdicts, load_verdicts
from feedrate.plan.claim import SOURCES
from feedrate.plan.suite import Suite
from feedrate.plan.suite import claims as all_claims
from feedrate.questions.claims import page as claims_page
from feedrate.questions.suites import page as suites_page
from feedrate.schema import words
from feedrate.store.manifest import AskedClaim

Show = Callable[..., RunView]
TESTED = ("workers", "collate")


def plain(html: str) -> str:
    return reading.plain(re.sub(r"</?a\b[^>]*>", "", html))


def run(show: Show, **what: Any) -> RunView:
    return show(**{"suites": ("claims",), "claims": TESTED, "blocks": 3, "fails": "none"} | what)


@pytest.fixture(scope="module")
def tested(show: Show) -> RunView:
    return run(show)


@pytest.fixture(scope="module")
def found(tested: RunView) -> Verdicts:
    return load_verdicts([tested])


@pytest.fixture(scope="module")
def body(found: Verdicts) -> str:
    return claims_page.page(found).body


def section(body: str, name: str) -> str:
    return body.partition(f'id="claim-{name}"')[2].partition('<details class="fr-claim"')[0]


@pytest.mark.slow
def test_every_claim_has_a_section(body: str) -> None:
    """Each claim stands there once: words, sources by name, figures, design and what it does not show."""
    for name, (_, claim) in all_claims().items():
        assert body.count(f'id="claim-{name}"') == 1
        said = plain(section(body, name))
        for text in (
            claim.says,
            claim.design,
            claim.not_shown,
            claim.figures,
            *(SOURCES[key].title for key in claim.sources),
        ):
            assert " ".join(text.split()) in said, name


def test_a_tested_claim_shows_its_evidence(found: Verdicts, tested: RunView, body: str) -> None:
    """Verdict, sentence, blocks, run, command and a line a case; of a fact what every check saw."""
    (told,) = found.results["excess-workers"]
    assert told.tested
    html = section(body, "excess-workers")
    assert plain(told.sentence) in plain(html)
    assert f'data-verdict="{told.verdict}"' in html
    assert f"{told.row['n']:.0f} repetitions" in html
    assert f'href="{tested.page.replace(".md", ".html")}"' in html
    assert "make sweep SUITE=workers" in html
    for row in told.cases:
        assert estimate(row) in html
    (fact,) = found.results["clean-termination"]
    assert fact.verdict in ("confirmed", "refuted")
    assert plain(section(body, "clean-termination")).count("Made up: ") > len(fact.cases)


def test_the_tally_counts_every_claim(found: Verdicts, body: str) -> None:
    """The verdicts of a machine add up to all claims, and the sentence says each count."""
    counts = found.tally(0)
    assert sum(counts.values()) == len(all_claims())
    said = plain(body)
    for verdict, count in counts.items():
        assert f"{count} {verdict}" in said


def test_what_cannot_be_tested_has_its_reason(found: Verdicts, body: str) -> None:
    """Claims without cells, or that need a device, say the reason in their section."""
    (told,) = found.results["pin-danger"]
    assert told.verdict == NOT_TESTABLE
    assert "Not testable here: needs a CUDA device." in plain(section(body, "pin-danger"))
    assert "Not testable here: no run has settings of it." in plain(body)


@pytest.mark.slow
def test_runs_of_a_machine_are_pooled_and_named(show: Show, tested: RunView) -> None:
    """A claim has the blocks of all runs that tested it, each linked with its grade; withdrawn ones are counted."""
    again = run(show, run_id="20270101T000000Z-again", claims=("workers",))
    gone = run(show, run_id="20270101T000000Z-gone", claims=("collate",))
    gone.manifest = gone.manifest.model_copy(
        update={"claims": (AskedClaim(claim="gil-threads", blocks=3, reason="done"),)}
    )
    found = load_verdicts([again, tested], withdrawn=[gone])
    (told,), (single,) = found.results["gil-threads"], found.results["totensor-transpose"]
    assert (told.views, told.row["n"]) == ((again, tested), 6)
    cited = claims_page.page(found).figures["claims"].citation
    assert cited
    assert {*cited.origin.runs} == {again.manifest.run_id, tested.manifest.run_id}
    assert (single.views, single.row["n"]) == ((tested,), 3)
    assert len(found.platforms) == 1
    html = section(claims_page.page(found).body, "gil-threads")
    said = plain(html)
    assert "6 repetitions; 2 runs; " in said
    assert "few repetitions (under 8); 1 run withdrawn; " in said
    for view in (again, tested):
        assert f'href="{view.page.replace(".md", ".html")}"' in html
        assert (
            f"{view.manifest.run_id}, {descriptions.day(view.manifest.started_at)}, grade {view.grade.letter}" in said
        )
    assert "withdrawn" not in plain(section(claims_page.page(found).body, "totensor-transpose"))


def test_parts_and_worst_cases_are_shown(found: Verdicts, body: str) -> None:
    """What a claim says besides has its verdict in a table; the worst case stands beside the mean."""
    (told,) = found.results["excess-workers"]
    (part,) = (case for case in told.cases if case["role"] == "also")
    html = section(body, "excess-workers")
    lines = [plain(line) for line in html.partition("Parts of the claim")[2].partition("</table>")[0].split("<tr")]
    assert any(line.endswith(f"{part['case']} {estimate(part)} {part['n']} {part['verdict']}") for line in lines)
    ends = [case["ratio"] for case in told.cases if case["role"] == "case"]
    assert told.row["worst"] == max(ends)
    assert f"{estimate(told.row)}, worst {worst(told.row)}" in plain(html.partition("</summary>")[0])
    assert f"; the worst is {worst(told.row)} (" in told.sentence
    depends = replace(told, row={**told.row, "verdict": "depends"})
    assert f"{words.times(min(ends))} to {words.times(max(ends))}" in plain(claims_page.badges([depends]))


@pytest.mark.slow
def test_machines_and_devices_stand_apart(show: Show, tested: RunView) -> None:
    """Each machine has its own verdict, in the order of the tallies; its picture has a panel for each."""
    gpu = run(show, run_id="20260103T030405Z-gpu", device="cuda", claims=("collate",))
    found = load_verdicts([gpu, tested])
    assert {platform.manifest.device for platform in found.platforms} == {"cpu", "cuda"}
    page = claims_page.page(found)
    html = section(page.body, "totensor-transpose")
    for platform, told in zip(found.platforms, found.results["totensor-transpose"], strict=True):
        assert told.device == platform.manifest.device
        assert platform.name in plain(html)
        assert plain(told.sentence) in plain(html)
    assert page.figures["claims"].html.count('class="fr-chart"') == 2
    assert page.body.count('name="device"') == 2


def test_a_suite_lists_its_claims(tested: RunView, found: Verdicts) -> None:
    """A suite's page names its claims with their verdicts and leads to them; others' are not there."""
    body = suites_page.page("loader", "suites/loader.md", Suite("Which?", ()), [tested], found).body
    mine = [name for name, (owner, _) in all_claims().items() if owner == "loader"]
    links = re.findall(r'href="\.\./claims\.html#claim-([\w-]+)"', body)
    assert links == mine
    assert claims_page.suite_section(found, "calibration", "suites/calibration.md") == []
    assert (
        "What the sources say" not in suites_page.page("loader", "suites/loader.md", Suite("Which?", ()), [tested]).body
    )


def test_a_suite_that_asks_by_claims_is_answered_by_them(found: Verdicts, tested: RunView) -> None:
    """Where no setting can be recommended the answer counts the verdicts of the suite's own claims."""
    said = claims_page.answer(found, "workers", tested)
    mine = [told[0].verdict for name, told in found.results.items() if found.claims[name][0] == "workers"]
    assert said.startswith(f"Of {len(mine)} claims on this question: ")
    assert f"{mine.count('confirmed')} confirmed" in said
    assert claims_page.answer(found, "training", tested) == ""
