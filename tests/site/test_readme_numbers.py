"""Every number in the sentences and tables of README and home page, computed anew from the raw records.

``test_readme.py`` holds the README against the code that wrote it. Here its numbers are read from its text, and nothing
of ``feedrate.analysis`` takes part but the rule that gives a claim its verdict: verdicts are counted here. What a claim
compares is taken from its declaration.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import unescape
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from cross_fit import cross_fit
from scipy import stats

from feedrate.analysis.claim_values import observe
from feedrate.analysis.claims import judge_claims
from feedrate.pages.runs import RunView
from feedrate.pages.verdicts import load_verdicts
from feedrate.plan import suite
from feedrate.plan.claim import Effect, untestable
from feedrate.questions.home import page as home_page
from feedrate.schema.axes import AXES, BY_NAME, CONDITIONS, PHOTOGRAPHS, TRAINING, Value
from feedrate.schema.columns import PROTOCOL_VERSION
from feedrate.schema.metrics import METRICS, least_of
from feedrate.schema.plugins import ROOT
from feedrate.site import readme
from feedrate.store import runs
from feedrate.store import runs as store_runs
from feedrate.store.bench_record import BenchRecord
from feedrate.store.runs import StoredRun

RESULTS = ROOT / "results"
EVERY = tuple(axis.name for axis in AXES)
FEWEST = 4
"""Blocks without which no gain is told."""
NUMBER = r"([\d,]*\.?\d+)"
SPREAD = rf"95\s% interval {NUMBER} to {NUMBER}, n = (\d+)"


def number(text: str) -> float:
    return float(text.replace(",", ""))


def digits(value: float, count: int = 3) -> float:
    """A number as it is printed: with so many significant digits."""
    return float(f"{value:.{count}g}")


def axes(parts: Sequence[str]) -> dict[str, Value]:
    """The axes that words of the README name: ``batch 32``, ``2 workers``, ``cold page cache``, ``pin_memory true``."""
    spoken: dict[str, dict[str, Value]] = {
        "real training": {"mode": "train"},
        "emulated step": {"mode": "train", "step": "emulated"},
        "loading alone": {"mode": "load"},
        "cold page cache": {"page_cache": "cold"},
        "in stored order": {"access": "sequential"},
    }
    found: dict[str, Value] = {}
    for part in filter(None, parts):
        first, _, rest = part.partition(" ")
        if part in spoken:
            found |= spoken[part]
        elif rest in ("worker", "workers"):
            found["num_workers"] = int(first)
        elif rest == "ms a step":
            found["step_ms"] = float(first)
        elif first == "batch":
            found["batch_size"] = int(rest)
        elif not rest:
            found["storage_format"] = part
        else:
            found[first] = rest == "true" if BY_NAME[first].type is bool else BY_NAME[first].type(rest)
    return found


def matching(trials: pd.DataFrame, values: Mapping[str, Value], among: Sequence[str]) -> pd.DataFrame:
    """Trials that ended well with some values, and every other of the axes at its default or without meaning."""
    chosen = trials["outcome"].eq("ok")
    for name in among:
        default = BY_NAME[name].default
        wanted = values.get(name, default)
        chosen &= trials[name].eq(wanted).fillna(wanted == default)
    return trials[chosen]


def logs(trials: pd.DataFrame, values: Mapping[str, Value], metric: str = "throughput") -> pd.Series:
    """Mean log of a metric by block, of the one cell that has some values and else the defaults."""
    rows = matching(trials, values, EVERY)
    assert rows["cell_id"].nunique() == 1, (values, rows["cell_id"].unique())
    if metric == "throughput":
        up, down = ("samples",), ("wall_ns",)
    else:
        up, down = METRICS[metric].up, METRICS[metric].down
    each = sum(np.log(rows[name].astype(float)) for name in up) - sum(np.log(rows[name].astype(float)) for name in down)
    return each.groupby(rows["block"]).mean()


def interval(values: pd.Series) -> list[float]:
    """Geometric mean and 95 % Student-t interval of logs by block, three digits each, and the number of blocks."""
    known = values.dropna()
    half = stats.t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known))
    return [*(digits(np.exp(known.mean() + shift)) for shift in (0.0, -half, half)), len(known)]


def fitted(gains: pd.DataFrame, measured: pd.DataFrame | None = None) -> list[float]:
    """The same of the best of several settings (columns), cross-fitted."""
    mean, half, n = cross_fit(gains, measured)
    return [*(digits(np.exp(mean + shift)) for shift in (0.0, -half, half)), n]


def settings(trials: pd.DataFrame, task: Mapping[str, Value]) -> pd.DataFrame:
    """Log throughput of every setting of a task that was asked for, blocks × cells in the order of the trials."""
    same = matching(trials, task, CONDITIONS)
    asked = set(trials.loc[~trials["role"].isin(["ceiling", "control"]), "cell_id"])
    rates = np.log(same["samples"].astype(float) / same["wall_ns"].astype(float) * 1e9)
    means = rates.groupby([same["block"], same["cell_id"]]).mean().unstack()
    return means[[name for name in trials["cell_id"].unique() if name in asked and name in means]]


def gains(trials: pd.DataFrame, task: Mapping[str, Value]) -> pd.DataFrame:
    """Log ratio of every loader of a task to the default one of its format and batch size, blocks × cells."""
    rates = settings(trials, task)
    found = {}
    for name, cell in trials.drop_duplicates("cell_id").set_index("cell_id").loc[rates.columns].iterrows():
        same = task | {axis: cell[axis] for axis in ("storage_format", "batch_size")}
        step = {axis.name: cell[axis.name] for axis in TRAINING if axis.name not in CONDITIONS}
        usual = all(pd.isna(value) or value == BY_NAME[axis].default for axis, value in step.items())
        plain = matching(trials, same, EVERY)["cell_id"].unique()
        if usual and len(plain):
            found[name] = rates[name] - rates[plain[0]]
    return pd.DataFrame(found)


def most_gained(trials: pd.DataFrame, task: Mapping[str, Value], setting: Mapping[str, Value]) -> list[float]:
    """What loader settings gain most in a task, of all formats and batch sizes; that of a setting, which is named."""
    every = gains(trials, task)
    named = matching(trials, task | setting, EVERY)["cell_id"].unique()
    assert list(named) == [every.loc[:, every.count() >= FEWEST].mean().idxmax()]
    return fitted(every)


def committed() -> list[RunView]:
    """Runs that git knows, newest first: what somebody measured besides is not published. Without git, all of them."""
    asked = ["git", "ls-files", "results/*/*/run.json"]
    listed = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    folders = [(ROOT / name).parent for name in listed] or None
    return [RunView(run) for run in reversed(runs.runs(RESULTS, folders))]


STORED = "lmdb-over-png"
FINDINGS = {
    "gain": rf"for (?P<task>real training|an emulated step of (?P<ms>\S+) ms) on (?P<workload>\S+) at (?P<px>\d+) px"
    rf"(?P<more>.*), (?:with (?P<settings>.+), {NUMBER} times as many samples come through as with PyTorch’s defaults "
    rf"\(cross-fitted, {SPREAD} blocks; from (?P<format>\w+), batches of (?P<batch>\d+)\)|no loader setting is clearly "
    r"faster than PyTorch’s defaults, at any format and batch size)\. "
    r"This task comes first in a fixed order, whatever it gains\.",
    "stored": rf"before an emulated step of 10 ms, training on decoded pixels in LMDB is {NUMBER} times as fast as on "
    rf"PNG files \({SPREAD} blocks; (?P<workload>\w+), averaged over (?P<settings>\d+) settings, at worst {NUMBER}×\), "
    r".+\.",
    "counted": r"of (?P<tested>\d+) tested sentences on faster training \(samples: (?P<samples>.+)\), (?P<counts>.+)\.",
    "refuted": r"what does not hold is (?P<listed>.+)\.",
    "accurate": r"over (?P<trials>\d+) trials of (?P<cells>\d+) planted cells, the throughput that feedrate reports is "
    rf"within {NUMBER}\s% of an external clock \(median ([+−]){NUMBER}\s%\)\.",
}
"""The sentences that may stand in the README, after their machine."""
VERDICTS = {
    "holds?": "confirmed",
    "depends? on the setting": "depends",
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


def effect(runs: Sequence[StoredRun], declared: Effect, photographs: Sequence[str]) -> pd.Series:
    """Log of an effect by block of every run that has its cells: their logs with the weights that a claim declares."""
    found = []
    for trials in (run.table("trials") for run in runs):
        known = [name for name in PHOTOGRAPHS if name in photographs and name in set(trials["workload"])]
        cells = [
            (share * weight, values | ({"workload": known[0]} if values.get("workload") == PHOTOGRAPHS[0] else {}))
            for share, case in declared.weighted_cases()
            for weight, values in declared.sides(case)
        ]
        if all(len(matching(trials, values, EVERY)) for _, values in cells):
            terms = [weight * logs(trials, values, declared.metric) for weight, values in cells]
            found.append(pd.concat(terms, axis=1).sum(axis=1, skipna=False))
    return pd.concat(found)


def judged(runs: Sequence[StoredRun]) -> dict[str, tuple[list[StoredRun], str]]:
    """Claim to the runs that tested it, pooled, and its verdict."""
    claims, newest = suite.claims(), sorted(runs, key=lambda run: run.manifest.started_at, reverse=True)
    found = judge_claims([observe(run.table("trials"), claims, run.manifest.untestable) for run in newest], claims)
    return {
        str(row["claim"]): ([run for run in newest if run.manifest.run_id in row["run_ids"]], str(row["verdict"]))
        for row in found.claims.to_dict("records")
        if row["verdict"] != "not testable here"
    }


@pytest.fixture(scope="module")
def findings() -> dict[str, Finding]:
    """The README's sentences by kind; one that is of no kind is a number that nobody recomputes."""
    found = {}
    for line in re.findall(r"^- (.+)$", readme.view(), re.MULTILINE):
        whole = re.fullmatch(r"On (?P<machine>.+?): (?P<text>.+) From (?P<sources>`.+)\.", line)
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
        version = run.manifest.protocol_version
        assert finding.machine.endswith(f" (protocol {version})") == (version < PROTOCOL_VERSION)
    return runs


def test_the_gain_that_is_told(findings: dict[str, Finding]) -> None:
    """Best against default settings, or that none is clear, from the trials of the run that is named."""
    found = findings["gain"]
    said, (run,) = found.said, runs_of(found)
    data = axes(["emulated step", f"{said['ms']} ms a step"] if said["ms"] else ["real training"])
    data |= {"workload": said["workload"], "patch_size": int(said["px"])} | axes(said["more"].split(", "))
    if not said["settings"]:
        assert fitted(gains(run.table("trials"), data))[1] <= 1.01
        return
    setting = axes([said["format"], f"batch {said['batch']}", *said["settings"].split(", ")])
    stated = re.search(rf"{NUMBER} times as many .*{SPREAD}", found.text)
    assert stated
    assert [number(text) for text in stated.groups()] == most_gained(run.table("trials"), data, setting)


def test_what_storing_pixels_is_worth(findings: dict[str, Finding]) -> None:
    """The claim's settings, averaged block by block of all its runs, on the samples that are named; the worst alone."""
    found = findings["stored"]
    runs, declared = runs_of(found), suite.claims()[STORED][1].effect
    stated = re.search(rf"{NUMBER} times as fast .*?{SPREAD}", found.text)
    assert stated
    assert declared
    ratios = effect(runs, declared, [found.said["workload"]])
    assert [number(text) for text in stated.groups()] == interval(ratios)
    assert len(declared.cases) == int(found.said["settings"])
    stated = re.search(rf"at worst {NUMBER}×", found.text)
    assert stated
    every, samples = runs_of(findings["counted"]), [found.said["workload"]]
    each = [effect(every, replace(declared, cases=(case,)), samples).mean() for case in declared.cases]
    assert number(stated[1]) == round(float(np.exp(min(each))), 2)


def test_verdicts_are_counted(findings: dict[str, Finding]) -> None:
    """Counts are those of the verdicts, add up to the sentences that were tested, and need every run that is named."""
    found = findings["counted"]
    told = judged(runs_of(found))
    stated = {verdict: int(counted[1]) for words, verdict in VERDICTS.items() if (counted := _count(words, found.said))}
    assert stated == Counter(verdict for _, verdict in told.values())
    assert sum(stated.values()) == int(found.said["tested"])
    assert {run.manifest.run_id for runs, _ in told.values() for run in runs} == set(found.sources)


def _count(words: str, said: re.Match[str]) -> re.Match[str] | None:
    return re.search(rf"(\d+) (?:{words})(?:,| and|$)", said["counts"])


def test_refuted_claims_have_their_ratios(findings: dict[str, Finding]) -> None:
    """Every claim that runs refute is listed, with the ratio of its cells, or how many checks saw otherwise."""
    found = findings["refuted"]
    told = judged(runs_of(findings["counted"]))
    claims = {claim.says.rstrip("."): claim for _, claim in suite.claims().values()}
    listed = re.findall(r"“([^”]+)” \((.+?)\)(?=, “| and “|$)", found.said["listed"])
    assert {claims[says].id for says, _ in listed} == {
        name for name, (_, verdict) in told.items() if verdict == "refuted"
    }
    samples = re.split(", | and ", findings["counted"].said["samples"])
    for says, measured in listed:
        claim, (runs, _) = claims[says], told[claims[says].id]
        assert {run.manifest.run_id for run in runs} <= set(found.sources)
        if claim.facts:
            what = {"mode": "check", **claim.facts[0]}
            each = [matching(run.table("trials"), what, EVERY)["fact"] for run in runs]
            seen = pd.concat(each)
            assert not seen.astype(bool).any()
            assert measured == f"{len(seen)} check{'s' if len(seen) > 1 else ''} saw otherwise"
            continue
        stated = re.search(rf" {NUMBER}[ ;].*{SPREAD} blocks", measured)
        assert stated, measured
        part = [also.effect for also in claim.also if measured.startswith(f"{also.label}: ")]
        declared = part[0] if part else claim.on(runs[0].manifest.device).effect
        assert declared
        expected = interval(effect(runs, declared, samples))
        assert [number(text) for text in stated.groups()] == expected
        least = least_of(declared.figure, declared.says) if declared.figure else 1
        against = {"more": expected[2] < least, "less": expected[1] > least, "same": not expected[1] < 1 < expected[2]}
        assert against[declared.says]


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
    assert told == [finding.text.partition(" From `")[0] for finding in findings.values()]


class Line(NamedTuple):
    """A row of the README's table."""

    task: dict[str, Value]
    setting: dict[str, Value]
    others: str
    """How many other settings are as good."""
    rate: str
    n: int
    gain: str


def table() -> tuple[StoredRun, list[Line]]:
    """The README's table, and the run that it is of."""
    named = re.search(r"run `([^`]+)`", readme.view())
    assert named
    lines = []
    for row in readme.view().partition("|---|\n")[2].partition("\n\n")[0].splitlines():
        cells = row.replace("<br>", ", ").removeprefix("| ").removesuffix(" |").split(" | ")
        task, setting, rate, n, _, gain = cells
        ran, _, data = task.partition(": ")
        lines.append(line([*data.split(", "), *ran.split(", ")], setting, rate, n, gain))
    return store_runs.find(named[1], RESULTS), lines


def line(task: Sequence[str], setting: str, rate: str, n: str, gain: str) -> Line:
    """Take a row apart; its task is workload, pixels, what ran, and under which conditions."""
    workload, pixels, *ran = task
    what = axes(ran) | {"workload": workload, "patch_size": int(re.sub(r"\spx", "", pixels))}
    own, *others = re.split(r", (?=1 of \d+ that|clearly the best of \d+)", setting)
    return Line(what, axes(own.split(", ")), "".join(others), rate, int(n), gain)


def on_home() -> list[tuple[StoredRun, list[Line]]]:
    """The tables of the home page, one a machine, and their runs."""
    runs = committed()
    page = home_page.page(runs, [], load_verdicts([])).body
    found = []
    for section in re.split(r"\{ #numbers-", page)[1:]:
        (run,) = [view.run for view in runs if f">run {view.manifest.run_id}</a>" in section]
        rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr.*?</tr>", section)[1:]]
        cells = [[unescape(re.sub(r"<[^>]+>", "", cell.replace("<br>", ", "))) for cell in row] for row in rows]
        lines = [
            line(task.split(", "), setting, f"{rate} ({spread})", n, gain)
            for task, setting, rate, spread, n, _, gain in cells
        ]
        told = re.findall(rf"{NUMBER} times as many .*?{SPREAD} blocks", unescape(section))
        gains = [gain.groups() for each in lines if (gain := re.match(rf"× {NUMBER} \({SPREAD}\)", each.gain))]
        assert set(told) <= set(gains), "the sentences above a table tell gains of the table"
        found.append((run, lines))
    return found


@pytest.fixture(scope="module")
def tables() -> list[tuple[StoredRun, list[Line]]]:
    """The tables of README and home page, and their runs."""
    found = [table(), *on_home()]
    assert len(found) > 1
    assert all(lines for _, lines in found)
    return found


def test_tables_state_their_cells(tables: list[tuple[StoredRun, list[Line]]]) -> None:
    """No cell of its task is faster than that which a row describes; rate, interval and n are cross-fitted over all."""
    for run, lines in tables:
        trials = run.table("trials")
        for row in lines:
            every = settings(trials, row.task)
            named = matching(trials, row.task | row.setting, EVERY)["cell_id"].unique()
            assert list(named) == [every.mean().idxmax()]
            stated = re.fullmatch(rf"{NUMBER} \({NUMBER}\s–\s{NUMBER}\)", row.rate)
            assert stated, row.rate
            assert [*map(number, stated.groups()), row.n] == fitted(
                every.sub(every[every.count().idxmax()], axis=0), every
            )


def test_tables_count_what_cannot_be_told_from_the_best(tables: list[tuple[StoredRun, list[Line]]]) -> None:
    """How many settings there are, how many are as good as the best, and that the named one of them is."""
    for run, lines in tables:
        trials = run.table("trials")
        for row in lines:
            every = settings(trials, row.task)
            ratios = every.sub(every[every.mean().idxmax()], axis=0)
            reach = ratios.mean() + stats.t.ppf(0.975, ratios.count() - 1) * ratios.std() / np.sqrt(ratios.count())
            as_good = every.columns[reach >= -1e-12]
            if len(as_good) == 1:
                assert row.others == (f"clearly the best of {len(every.columns)}" if len(every.columns) > 1 else "")
                continue
            said = re.fullmatch(
                r"1 of (\d+) that cannot be told from the best of (\d+)(?:; the cheapest is (.+))?.*", row.others
            )
            assert said, row.others
            assert [int(said[1]), int(said[2])] == [len(as_good), len(every.columns)]
            cheapest = axes(said[3].split(", ")) if said[3] else row.setting
            (named,) = matching(trials, row.task | cheapest, EVERY)["cell_id"].unique()
            workers = trials.drop_duplicates("cell_id").set_index("cell_id").loc[as_good, "num_workers"]
            assert named in as_good
            assert workers[named] == workers.min()


def test_tables_have_every_task(tables: list[tuple[StoredRun, list[Line]]]) -> None:
    """As many rows as the run has tasks: what was asked to train or to load, cross-checks of the timing aside."""
    for run, lines in tables:
        trials = run.table("trials")
        asked = trials[trials["outcome"].eq("ok") & ~trials["role"].isin(["ceiling", "control"])]
        asked = asked[asked["mode"].isin(["train", "load"]) & asked["timing"].ne("serialized").fillna(True)]
        asked = asked[asked["suite"].map(suite.for_machines)]
        given = {
            name: asked[name].astype(object).where(asked[name].notna(), BY_NAME[name].default) for name in CONDITIONS
        }
        assert len(pd.DataFrame(given).drop_duplicates()) == len(lines)


@pytest.mark.slow
def test_gains_in_tables_are_paired(tables: list[tuple[StoredRun, list[Line]]]) -> None:
    """Each gain is over the defaults of one format and batch size, cross-fitted; where none is told none is clear."""
    for run, lines in tables:
        trials = run.table("trials")
        for row in lines:
            gain = re.fullmatch(rf"× {NUMBER} \({SPREAD}\), (\w+), (batch \d+): (.+)", row.gain)
            if gain:
                setting = axes([gain[5], gain[6], *gain[7].split(", ")])
                assert [number(gain[place]) for place in range(1, 5)] == most_gained(trials, row.task, setting)
                continue
            every = gains(trials, row.task)
            expected = "not measured" if every.empty else "none that is clear"
            assert row.gain == (expected if every.empty or every.count().max() >= FEWEST else "needs 4 blocks")
            assert row.gain != "none that is clear" or fitted(every)[1] <= 1.01


def test_what_is_said_of_all_runs_holds() -> None:
    """Of what is not generated: how many claims there are and can be tested, and on what machines."""
    text = " ".join(readme.README.read_text(encoding="utf-8").split())
    every = [view for view in committed() if view.beside.tier == "reference"]
    claims = [claim for _, claim in suite.claims().values()]
    assert f"{len(claims)} sentences of five widely read documents and common advice" in text
    without = [claim for claim in claims if untestable(claim.on("cpu"), "cpu") is None]
    assert f"{len(without)} of them can be tested without a GPU" in text
    apart = [claim for claim in claims if claim.needs in ("disks", "machines")]
    assert f"{len(apart)} on no single machine" in text
    machines = {view.machine_id: view.manifest.machine for view in every}.values()
    assert {(each.cores_logical, each.virtualised, each.gpu_count) for each in machines} == {(2, True, 0)}
    assert "two virtual machines with 2 cores and no GPU" in text
    assert len(machines) == 2
