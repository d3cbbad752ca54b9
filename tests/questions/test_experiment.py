"""The source's experiment beside ours: its contradictions shown, our ratios those of the records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from feedrate.pages import selection
from feedrate.pages.runs import RunView
from feedrate.pages.verdicts import load_verdicts
from feedrate.plan import suite
from feedrate.questions.experiment import analysis as analysed
from feedrate.questions.experiment import page as experiment_page
from feedrate.schema.axes import Value
from feedrate.store.marks import REFERENCE, Beside

Show = Callable[..., RunView]
BATCHES = (8, 16, 32, 64, 128)


def page(*runs: RunView) -> str:
    return experiment_page.page(runs, load_verdicts(runs)).body


def plain(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def log_rates(trials: pd.DataFrame, **cell: object) -> pd.Series:
    """Mean log throughput by block of the cells with some values."""
    matches = trials["outcome"].eq("ok")
    for name, value in cell.items():
        matches &= trials[name].eq(value).fillna(False)
    chosen = trials[matches]
    assert chosen["cell_id"].nunique() == 1
    return np.log(chosen["samples_per_s"].astype(float)).groupby(chosen["block"]).mean()


def test_epoch_times_are_throughputs_turned_over(show: Show) -> None:
    """A ratio is the mean of paired log ratios by block, with batches of 8 on top; its ends keep their order."""
    trials = show(batches=BATCHES, fails="none").trials
    found = analysed.epochs(analysed.experiment_contrasts(trials))
    own = found[found["mode"].eq("train") & found["step"].eq("real") & found["num_workers"].eq(0)]
    assert len(own)
    assert set(found["batch_size"]) == set(BATCHES[1:])
    for row in own.to_dict("records"):
        fixed = {
            name: row[name]
            for name in ("mode", "step", "num_workers", "storage_format", "patch_size")
            if not pd.isna(row[name])
        }
        small = log_rates(trials, batch_size=8, **fixed)
        large = log_rates(trials, batch_size=row["batch_size"], **fixed)
        assert np.isclose(row["ratio"], np.exp((small - large).mean()))
        assert row["lo"] < row["ratio"] < row["hi"]


def test_either_value_may_be_the_first_of_a_contrast() -> None:
    """LMDB against PNG is the same number whichever of them the table of contrasts divides by."""
    row = dict.fromkeys(analysed.COLUMNS) | {"axis": "storage_format", "ratio": 4.0, "lo": 3.2, "hi": 5.0}
    forth = pd.DataFrame([row | {"a_value": "png", "b_value": "lmdb", "n": 6}])
    back = pd.DataFrame([row | {"a_value": "lmdb", "b_value": "png", "ratio": 0.25, "lo": 0.2, "hi": 0.3125, "n": 6}])
    for found in (forth, back):
        (turned,) = analysed.ratios_between(found, "storage_format", "png", "lmdb").to_dict("records")
        assert (turned["ratio"], turned["lo"], turned["hi"], turned["n"]) == (4.0, 3.2, 5.0, 6)
        assert turned["storage_format"] == "lmdb"


def test_what_the_source_contradicts_stands_side_by_side(show: Show) -> None:
    """Its tables and its text give different minutes for the same epochs; both are shown."""
    text = plain(page(show(batches=BATCHES)))
    assert "8 16 min 20 min 1.00 33 %" in text
    assert "128 3 min 4 min 0.188 84 %" in text


def test_every_ratio_has_its_interval_and_its_blocks(show: Show) -> None:
    """Cells of the tables read ratio, interval; the last column counts blocks; the run and its command are named."""
    view = show(batches=BATCHES, fails="none")
    body = page(view)
    _, *rows = rows_of(body, "How long an epoch takes")
    assert rows
    for *cells, n in rows:
        assert re.fullmatch(r"\d+( to \d+)?", n)
        assert all(re.fullmatch(r"[\d.]+ \([\d.]+–[\d.]+\)|–", cell) for cell in cells[2:]), cells
    assert view.manifest.run_id in body
    assert "Pinned memory needs a CUDA device" in body


def copied(view: RunView, **known: Any) -> RunView:
    """The same run, of which other things are known: its trials, or what lies beside it."""
    other = RunView(view.run)
    vars(other).update(known)
    return other


def rows_of(body: str, title: str) -> list[list[str]]:
    """The cells of the rows below a heading, as text."""
    table = body[body.index(title) :].partition("</table>")[0]
    rows = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", line) for line in re.findall(r"<tr[^>]*>(.*?)</tr>", table)]
    return [[plain(cell) for cell in row] for row in rows]


def test_pinning_is_compared_where_there_is_a_gpu(show: Show) -> None:
    """On CUDA there is the table that the source has on pinned memory; its ratios are those of the raw trials.

    The run crosses pinning with non_blocking copies: the ratio is of those that are waited for, as by default.
    """
    view = show(device="cuda", run_id="20260103T030405Z-gpu", fails="none")
    body = page(view)
    (_, _, *batches, _), *rows = rows_of(body, "### Pinned memory against pageable")
    assert batches == [f"batch {batch}" for batch in (8, 32, 128)]
    training = [row for row in rows if row[0] == "real training"]
    assert {row[1] for row in training} == {
        f"div2k_standin, 16 px, {name}, {workers} workers" for name in ("png", "lmdb") for workers in (0, 2)
    }
    for _, setting, *ratios, n in training:
        workload, _, name, workers = setting.split(", ")
        given = {"mode": "train", "workload": workload, "storage_format": name, "num_workers": int(workers[0])}
        for batch, told in zip((8, 32, 128), ratios, strict=True):
            cell = {**given, "batch_size": batch, "non_blocking": False}
            logs = [log_rates(view.trials, **cell, pin_memory=pinned) for pinned in (True, False)]
            assert told.startswith(f"{np.exp((logs[0] - logs[1]).mean()):.2f} (")
        assert n == str(view.manifest.blocks)
    assert "Pinned memory needs" not in body
    assert "no ratio of pinned to pageable" not in body


def test_without_pinned_memory_it_is_said_why(show: Show) -> None:
    """A CPU has no use for it; a run on CUDA that did not vary it, or in which it only failed, says that alone."""
    view = show(device="cuda", run_id="20260103T030405Z-gpu", fails="none")
    pinned = view.trials["pin_memory"].eq(True).fillna(False)
    failed = view.trials.assign(outcome=view.trials["outcome"].mask(pinned, "oom"))
    for trials in (view.trials[~pinned], failed):
        body = page(copied(view, trials=trials))
        assert "This run gives no ratio of pinned to pageable memory." in body
        assert "Pinned memory needs" not in body
        assert "Pinned memory against pageable" not in body
    assert "Pinned memory needs a CUDA device; this run was made on the CPU." in page(show(fails="none"))


def test_a_machine_s_reference_run_stands_for_it(show: Show) -> None:
    """Of one tier the run with most batch sizes that gave ratios, then the newest; a reference run before any other."""
    newest, full, quick = (
        show(run_id=f"2026010{day}T030405Z-aaaa", batches=batches, fails="none")
        for day, batches in ((5, (8, 128)), (4, BATCHES), (3, (8, 16, 32, 128)))
    )
    text = page(newest, full, quick)
    assert [f"run {view.manifest.run_id}" in text for view in (newest, full, quick)] == [False, True, False]
    vouched = copied(quick, beside=Beside(tier=REFERENCE))
    unread = copied(full)
    body = experiment_page.page([newest, unread, vouched], load_verdicts(())).body
    assert f"run {quick.manifest.run_id}" in body
    assert "trials" not in vars(unread)
    failed = copied(full, trials=full.trials.assign(outcome="error"))
    assert f"run {quick.manifest.run_id}" in page(newest, failed, quick)


@pytest.mark.slow
def test_machines_with_reference_runs_come_first(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are more machines than can be shown, those that were measured last make room for them; it is said."""
    first, second, third = (
        show(run_id=f"2026010{day}T030405Z-aaaa", cores=day, fails="none", batches=(8, 128)) for day in (5, 4, 3)
    )
    runs = [first, second, copied(third, beside=Beside(tier=REFERENCE))]
    view = [view.machine_id for view in (third, first, second)]
    text = page(*runs)
    places = [text.index(f"{{ #machine-{name} }}") for name in view]
    assert places == sorted(places)
    assert "At most" not in text
    monkeypatch.setattr(selection, "MACHINES", 2)
    text = page(*runs)
    assert [f"{{ #machine-{name} }}" in text for name in view] == [True, True, False]
    assert "At most 2 machines are shown here: first those with reference runs" in text


def test_sentences_of_the_source_come_with_their_verdicts(show: Show) -> None:
    """They are counted, and each leads to its claim; without a run it is said what to type."""
    text = page(show(claims=("storage",), suites=("storage",)))
    assert "claims.html#claim-lmdb-over-png" in text
    assert re.search(
        r"Of the \d+ sentences that feedrate tests of this source, \d+ have been tested on 1 machine: \d+ ", text
    )
    assert "No run here has tested" in page()
    assert "make sweep PROFILE=reference" in page()


@pytest.mark.parametrize(
    "suites",
    [
        [("storage",)],
        pytest.param([("storage", "loader"), ("loader",)], marks=pytest.mark.slow),
        [("storage",), ("transfer",)],
    ],
)
def test_counts_of_sentences_add_up(show: Show, suites: list[tuple[str, ...]]) -> None:
    """Verdicts are counted machine by machine, sentences once; the others are those that need a GPU, and the rest."""
    runs = [
        show(
            run_id=f"2026010{9 - at}T030405Z-{at}",
            cores=16 - at,
            claims=own,
            suites=own,
            device="cuda" if "transfer" in own else "cpu",
        )
        for at, own in enumerate(suites)
    ]
    told = load_verdicts(runs)
    own = [name for name, (_, claim) in told.claims.items() if experiment_page.SOURCE in claim.sources]
    known = [name for name in own if any(each.tested for each in told.results[name])]
    text = plain(experiment_page.page(runs, told).body)
    assert f"Of the {len(own)} sentences that feedrate tests of this source, {len(known)} have been" in text
    said = text.split("have been tested on")[1].split("Not tested")[0]
    for at, place in enumerate(told.places):
        verdict = Counter(told.results[name][at].verdict for name in own if told.results[name][at].tested)
        part = said.split(f"{place.name}: " if len(suites) > 1 else "machine: ")[1].split(". ")[0]
        said_of = re.findall(r"(\d+) ([a-z ]+?)(?:,| and|\.|$)", part)
        assert {word: int(count) for count, word in said_of} == verdict
    cuda = sum(told.claims[name][1].needs == "cuda" for name in own if name not in known)
    rest = len(own) - len(known) - cuda
    needing = f"{cuda} that {'needs' if cuda == 1 else 'need'} a CUDA device"
    parts = [needing] * bool(cuda) + [f"{rest} that no run here has measured"] * bool(rest)
    assert f"Not tested: {' and '.join(parts)}." in text


def test_the_source_s_figures_are_those_that_its_claims_quote() -> None:
    """The page's tables and the sentences beside the claims give the same numbers."""
    asked = suite.claims()
    minutes, utilization = (asked[name][1].figures for name in ("batch-size-epoch", "batch-size-utilization"))
    assert ", ".join(f"{each:g}" for each in analysed.MINUTES.values()) in minutes
    assert " and ".join(f"{each:g}" for each in analysed.SPOKEN_MINUTES.values()) in minutes
    assert ", ".join(map(str, analysed.UTILIZATION.values())) in utilization


Trials = Callable[..., pd.DataFrame]
Cell = Mapping[str, Value]
TRAINED: dict[str, Any] = {"mode": "train", "workload": "div2k", "batch_size": 128, "num_workers": 8}
BLOCKS = 4


def rates(level: float | None) -> list[float | None]:
    return [level] * BLOCKS


def settled(found: pd.DataFrame) -> dict[str, float]:
    """Workload to the ratio of its only row, rounded."""
    rows = analysed.by_batch(found, "pin_memory")
    ratios = [(str(setting["workload"]), row["ratio"]) for setting, of_batch in rows for row in of_batch.values()]
    assert len(dict(ratios)) == len(ratios)
    return {workload: round(float(ratio), 6) for workload, ratio in ratios}


def test_emulated_steps_stand_behind_real_training(trials_of: Trials) -> None:
    """Whether the host sleeps or the device spins: neither is called training, nor stands before it."""
    steps = {"spin": "div2k", "emulated": "div2k", "real": "folder"}
    tried = [{**TRAINED, "step": step, "workload": workload} for step, workload in steps.items()]
    pinned = [{**cell, "pin_memory": True} for cell in tried]
    found = analysed.experiment_contrasts(trials_of([(cell, rates(100.0)) for cell in tried + pinned], device="cuda"))
    told = [experiment_page._setting(setting)[0] for setting, _ in analysed.by_batch(found, "pin_memory")]
    assert told == ["real training", "emulated step, 10 ms", "emulated step, 10 ms"]


@pytest.mark.parametrize(
    "other",
    [
        {"non_blocking": True},
        {"prefetch_factor": 4},
        {"timing": "serialized"},
        {"prefetcher": "stream"},
        {"amp": "bf16"},
        {"replica": 1},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_is_not_the_experiment_s_stays_at_its_default(trials_of: Trials, other: Cell) -> None:
    """Pinning doubles throughput at the defaults and makes it five times elsewhere: two is what the ratio says."""
    pinned = {**TRAINED, "pin_memory": True}
    elsewhere = [({**TRAINED, **other}, rates(100.0)), ({**pinned, **other}, rates(500.0))]
    trials = trials_of([(TRAINED, rates(100.0)), (pinned, rates(200.0)), *elsewhere], device="cuda")
    found = analysed.experiment_contrasts(trials)
    assert set(found["axis"]) == {"pin_memory"}
    assert settled(analysed.ratios_between(found, "pin_memory", a=False, b=True)) == {"div2k": 2.0}


def test_photographs_of_two_kinds_stand_apart(trials_of: Trials) -> None:
    """A run that trains on DIV2K and on its stand-in has a ratio of each, and no ratio of the two."""
    cells = [
        ({**TRAINED, "workload": workload, "pin_memory": pin}, rates(rate))
        for workload, pin, rate in (
            ("div2k", False, 100.0),
            ("div2k", True, 200.0),
            ("div2k_standin", False, 100.0),
            ("div2k_standin", True, 300.0),
        )
    ]
    found = analysed.experiment_contrasts(trials_of(cells, device="cuda"))
    assert settled(analysed.ratios_between(found, "pin_memory", a=False, b=True)) == {
        "div2k": 2.0,
        "div2k_standin": 3.0,
    }


def test_what_only_failed_is_no_ratio(trials_of: Trials) -> None:
    """A batch size whose every trial failed is in no row and does not count; blocks that both sides have do."""
    cells = [
        ({**TRAINED, "batch_size": 8}, rates(100.0)),
        ({**TRAINED, "batch_size": 32}, rates(None)),
        ({**TRAINED, "batch_size": 128}, [None, 400.0, 400.0, None]),
    ]
    trials = trials_of(cells)
    (row,) = analysed.epochs(analysed.experiment_contrasts(trials)).to_dict("records")
    assert (row["batch_size"], row["n"], round(row["ratio"], 6)) == (128, 2, 0.25)
    assert analysed.batch_sizes(trials) == 2


@pytest.mark.parametrize("cell", [{**TRAINED, "workload": "synthetic"}, {**TRAINED, "mode": "compute"}])
def test_a_run_without_the_experiment_has_no_ratios(trials_of: Trials, cell: Cell) -> None:
    """Other data and other stages are none of it, whatever their batch sizes."""
    trials = trials_of([({**cell, "batch_size": batch}, rates(100.0)) for batch in analysed.BATCHES])
    assert analysed.batch_sizes(trials) == 0
    assert analysed.epochs(analysed.experiment_contrasts(trials)).empty
