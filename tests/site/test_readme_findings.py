"""Every number in the sentences of README and home page, computed anew from the raw records.

``tests/test_readme.py`` holds the README against the code that wrote it. Here its numbers are read from its text, and
nothing of ``feedrate.analysis`` takes part but the rule that gives a claim its verdict: verdicts are counted here.
What a claim compares is taken from its declaration.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from html import unescape
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from tests.recomputed import NUMBER, RESULTS, SPREAD, axes, committed, digits, interval, logs, matching, number

from feedrate.analysis.claims import judge_claims
from feedrate.pages.verdicts import load_verdicts
from feedrate.plan import suite
from feedrate.plan.claim import PHOTOGRAPHS, Claim
from feedrate.questions.home import page as home_page
from feedrate.schema.axes import AXES
from feedrate.site import readme
from feedrate.store import runs as store_runs
from feedrate.store.bench_record import BenchRecord
from feedrate.store.runs import StoredRun

STORED = "lmdb-over-png"
FINDINGS = {
    "gain": rf"for (?P<task>real training|an emulated step of (?P<ms>\S+) ms) on (?P<workload>\S+) at (?P<px>\d+) px"
    rf"(?P<more>.*), with (?P<settings>.+), {NUMBER} times as many samples come through as with PyTorch’s defaults "
    rf"\({SPREAD} blocks; from (?P<format>\w+), batches of (?P<batch>\d+)\)\.",
    "stored": rf"decoded pixels in LMDB are read {NUMBER} times as fast as PNG files \({SPREAD} blocks; "
    r"(?P<workload>\w+), averaged over (?P<settings>\d+) settings, from memory and from the disk\), .+\.",
    "counted": r"of (?P<tested>\d+) tested sentences on faster training \(samples: (?P<samples>.+)\), (?P<counts>.+)\.",
    "refuted": r"what does not hold is (?P<listed>.+)\.",
    "accurate": r"over (?P<trials>\d+) trials of (?P<cells>\d+) planted cells, the throughput that feedrate reports is "
    rf"within {NUMBER}\s% of an external clock \(median ([+−]){NUMBER}\s%\)\.",
}
"""The sentences that may stand in the README, after their machine."""
VERDICTS = {
    "holds?": "confirmed",
    "do(?:es)? not hold": "refuted",
    "makes? no difference": "no difference",
    "(?:is|are) open": "inconclusive",
}


class Finding(NamedTuple):
    """A sentence of the README, taken apart."""

    text: str
    machine: str
    said: re.Match[str]
    sources: list[str]


def effect(trials: pd.DataFrame, claim: Claim, photographs: Sequence[str]) -> pd.Series:
    """Log of a claim's effect by block: the sum of its cells' logs with the weights that the claim declares."""
    assert claim.effect
    known = [name for name in PHOTOGRAPHS if name in photographs and name in set(trials["workload"])]
    parts = [(1 / len(claim.effect.cases), case) for case in claim.effect.cases]
    parts += [(-1 / len(claim.effect.against), case) for case in claim.effect.against]
    terms = []
    for share, case in parts:
        for weight, side in claim.effect.steps:
            values = {**case, **side}
            values |= {"workload": known[0]} if values.get("workload") == PHOTOGRAPHS[0] else {}
            terms.append(share * weight * logs(trials, values, claim.effect.metric))
    return pd.concat(terms, axis=1).sum(axis=1, skipna=False)


def speaking(runs: Sequence[StoredRun]) -> dict[str, tuple[StoredRun, dict[Any, Any]]]:
    """Claim to its verdict: that of the newest run made to test it, else of the newest that has its cells."""
    found: dict[str, tuple[StoredRun, dict[Any, Any]]] = {}
    newest = sorted(runs, key=lambda run: run.manifest.started_at, reverse=True)
    rows = [(run, judge_claims(run.table("trials"), suite.claims(), run.manifest.untestable).claims) for run in newest]
    for meant in (True, False):
        for run, claims in rows:
            asked = {one.claim for one in run.manifest.claims}
            for row in claims[claims["claim"].isin(asked) == meant].to_dict("records"):
                if row["verdict"] != "not testable here":
                    found.setdefault(str(row["claim"]), (run, row))
    return found


@pytest.fixture(scope="module")
def findings() -> dict[str, Finding]:
    """The README's sentences by kind; one that is of no kind is a number that nobody recomputes."""
    found = {}
    for line in re.findall(r"^- (.+)$", readme.view(), re.MULTILINE):
        whole = re.fullmatch(r"On (?P<machine>.+?): (?P<text>.+) \((?P<sources>`.+`)\)", line)
        assert whole, line
        kinds = {kind: said for kind, form in FINDINGS.items() if (said := re.fullmatch(form, whole["text"]))}
        ((kind, said),) = kinds.items()
        found[kind] = Finding(line, whole["machine"], said, re.findall(r"`([^`]+)`", whole["sources"]))
    return found


def runs_of(finding: Finding) -> list[StoredRun]:
    """The runs that a sentence was made from, all of the machine that it names."""
    runs = [store_runs.find(name, RESULTS) for name in finding.sources]
    for run in runs:
        machine = run.manifest.machine
        assert f"{machine.cpu_model}, {machine.cores_logical} core" in finding.machine
    return runs


def test_the_gain_that_is_told(findings: dict[str, Finding]) -> None:
    """Best against default settings, from the trials of the run that is named."""
    found = findings["gain"]
    said, (run,) = found.said, runs_of(found)
    data = axes(["emulated step", f"{said['ms']} ms a step"] if said["ms"] else ["real training"])
    data |= {"workload": said["workload"], "patch_size": int(said["px"])} | axes(said["more"].split(", "))
    data |= axes([said["format"], f"batch {said['batch']}"])
    trials = run.table("trials")
    ratios = logs(trials, data | axes(said["settings"].split(", "))) - logs(trials, data)
    stated = re.search(rf"{NUMBER} times as many .*{SPREAD}", found.text)
    assert stated
    assert [number(text) for text in stated.groups()] == interval(ratios)


def test_what_storing_pixels_is_worth(findings: dict[str, Finding]) -> None:
    """The claim's settings, averaged block by block, on the samples that are named."""
    found = findings["stored"]
    (run,), claim = runs_of(found), suite.claims()[STORED][1]
    stated = re.search(rf"{NUMBER} times as fast .*{SPREAD}", found.text)
    assert stated
    ratios = effect(run.table("trials"), claim, [found.said["workload"]])
    assert [number(text) for text in stated.groups()] == interval(ratios)
    assert claim.effect
    assert len(claim.effect.cases) == int(found.said["settings"])


def test_verdicts_are_counted(findings: dict[str, Finding]) -> None:
    """Counts are those of the verdicts, add up to the sentences that were tested, and need every run that is named."""
    found = findings["counted"]
    told = speaking(runs_of(found))
    stated = {verdict: int(counted[1]) for words, verdict in VERDICTS.items() if (counted := _count(words, found.said))}
    assert stated == Counter(row["verdict"] for _, row in told.values())
    assert sum(stated.values()) == int(found.said["tested"])
    assert {run.manifest.run_id for run, _ in told.values()} == set(found.sources)


def _count(words: str, said: re.Match[str]) -> re.Match[str] | None:
    return re.search(rf"(\d+) (?:{words})(?:,| and|$)", said["counts"])


def test_refuted_claims_have_their_ratios(findings: dict[str, Finding]) -> None:
    """Every claim that a run refutes is listed, with the ratio of its cells, or how many checks saw otherwise."""
    found = findings["refuted"]
    told = speaking(runs_of(findings["counted"]))
    claims = {claim.says.rstrip("."): claim for _, claim in suite.claims().values()}
    listed = re.findall(r"“([^”]+)” \((.+?)\)(?=, “| and “|$)", found.said["listed"])
    assert {claims[says].id for says, _ in listed} == {
        name for name, (_, row) in told.items() if row["verdict"] == "refuted"
    }
    samples = re.split(", | and ", findings["counted"].said["samples"])
    for says, measured in listed:
        claim, (run, _) = claims[says], told[claims[says].id]
        assert run.manifest.run_id in found.sources
        trials = run.table("trials")
        if claim.facts:
            seen = matching(trials, {"mode": "check", **claim.facts[0]}, [axis.name for axis in AXES])["fact"]
            assert not seen.astype(bool).any()
            assert measured == f"{len(seen)} check{'s' if len(seen) > 1 else ''} saw otherwise"
            continue
        stated = re.search(rf" {NUMBER}[ ;].*{SPREAD} blocks", measured)
        assert stated, measured
        expected = interval(effect(trials, claim.on(run.manifest.device), samples))
        assert [number(text) for text in stated.groups()] == expected
        assert claim.effect
        assert expected[2] < 1 if claim.effect.says == "more" else expected[1] > 1


def test_the_accuracy_is_that_of_the_record(findings: dict[str, Finding]) -> None:
    """Worst and median error against the external clock, from the times of the record's trials."""
    found = findings["accurate"]
    (name,) = found.sources
    records = [BenchRecord.model_validate_json(path.read_bytes()) for path in RESULTS.glob(f"*/bench/{name}.json")]
    (record,) = [one for one in records if one.machine.cpu_model in found.machine]
    errors = np.array([100 * (trial.witness_ns / trial.wall_ns - 1) for trial in record.witnessed])
    assert int(found.said["trials"]) == len(errors)
    assert int(found.said["cells"]) == len({trial.cell_id for trial in record.witnessed})
    stated = re.search(rf"within {NUMBER}\s%.*median ([+−]){NUMBER}\s%", found.text)
    assert stated
    worst, median = np.abs(errors).max(), float(np.median(errors))
    assert number(stated[1]) == digits(worst, 3 if worst >= 1 else 2)
    assert number(stated[3]) == digits(abs(median), 3 if abs(median) >= 1 else 2)
    assert (stated[2] == "−") == (median < 0)


def test_the_home_page_tells_the_same(findings: dict[str, Finding]) -> None:
    """The findings of the README stand on the front, word for word."""
    names = {name for finding in findings.values() for name in finding.sources}
    runs = [view for view in committed() if view.manifest.run_id in names]
    records = [record for record in store_runs.benches(RESULTS) if record.name in names]
    page = home_page.page(runs, [], load_verdicts(runs), benches=records).body
    told = re.findall(r"<li>(.+?) <a ", unescape(page.partition('<ul class="fr-found">')[2].partition("</ul>")[0]))
    assert told == [finding.text.rpartition(" (`")[0] for finding in findings.values()]
