"""Two runs compared on the terminal and as Markdown: what A and B may name, and what is said of them."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from feedrate.cli import app
from feedrate.plan import suite
from feedrate.questions.compare import comparison
from feedrate.questions.compare import terminal as compare_terminal
from feedrate.schema.errors import InputError
from feedrate.store import runs

pytestmark = pytest.mark.slow

SLOW, FAST = "20260102T030405Z-fake", "20260104T030405Z-fast"


@pytest.fixture(scope="module")
def results(fake_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two machines: one with two runs, and a busy one with fewer settings."""
    folder = tmp_path_factory.mktemp("results")
    for fake in (
        fake_run.Fake(batches=(8, 32)),
        fake_run.Fake(run_id="20260103T030405Z-late", batches=(8, 32)),
        fake_run.Fake(run_id=FAST, batches=(8, 32), workers=(0, 1), busy=True, cores=4),
    ):
        fake_run.write(folder, fake)
    return folder


@pytest.fixture(scope="module")
def compared(results: Path) -> comparison.Comparison:
    """The plain machine's first run against the busy machine."""
    return comparison.compare(SLOW, FAST, results)


def said(found: comparison.Comparison, **options: Any) -> str:
    """What the terminal shows."""
    console = Console(width=160, record=True, file=io.StringIO())
    compare_terminal.show(found, console, **options)
    return console.export_text()


def of_written(a: Path, b: Path) -> comparison.Comparison:
    """Compare two runs of one folder of results."""
    return comparison.compare(str(a), str(b), a.parents[1])


def machines(results: Path) -> list[str]:
    """Ids of both machines, the one with two runs first."""
    return [run.manifest.machine.machine_id for run in runs.runs(results)[1:]]


def test_the_terminal_says_everything(compared: comparison.Comparison) -> None:
    """Machines, what matched, one ratio, where B wins and loses, why, best settings: each has its part."""
    text = said(compared)
    titles = ["A and B", "What is compared", "How many times as fast B is", "Where B is faster", "Where B is slower"]
    titles += ["Why: what each stage could do", "Best settings"]
    assert [text.index(f"\n{title}\n") for title in titles] == sorted(text.index(f"\n{title}\n") for title in titles)
    over = compared.found.overall
    assert re.search(rf"B is 0\.\d+× \([\d.–]+\) as fast as A: the geometric mean over {over.n} settings\.", text)
    assert text.count("In brackets: 95 % intervals") == 1
    assert re.search(r"only in A +\d+ ", text)
    assert re.search(r"0\.\d+× \(0\.\d+–[01]\.\d+\)", text)
    assert SLOW in text
    assert FAST in text
    assert "16 hardware threads of 8 cores" in text
    assert "Loading alone, all workers" in text
    assert re.search(r"\d+ training settings?: [a-z-]+( in both| in A, [a-z-]+ in B)\.", text)
    assert "Grade" in text
    # Best rates, ratios and shares say their interval and blocks.
    assert re.search(
        r"A: (png|lmdb), batch \d+, \d+ workers?: [\d,]+ samples/s \([\d,]+–[\d,]+, n = 6\), [a-z-]+\n", text
    )
    assert re.search(r"best against best, B ÷ A is [\d.]+× \([\d.]+–[\d.]+, n = 6 and \d\)", text)
    assert re.search(r"'s setting reaches \d+ % \([\d.]+–[\d.]+ %, n = \d\) of [AB]'s on [AB]", text)
    assert re.search(r"\d+ (faster|slower|no difference|inconclusive)\b", text)


def test_claims_that_differ_say_their_blocks() -> None:
    """An effect has an interval and blocks, a fact the trials that looked, and no estimate is no fact."""
    asked = suite.claims()
    effect, fact = (
        next(claim for _, claim in asked.values() if (claim.effect is None) is bare) for bare in (False, True)
    )
    row = {"verdict_a": "confirmed", "ratio_a": 1.5, "lo_a": 1.4, "hi_a": 1.6, "n_a": 8.0}
    assert compare_terminal.verdict(row, "a", effect) == "confirmed: 1.50× (1.40–1.60, n\u00a0=\u00a08)"
    row |= {"ratio_a": math.nan, "n_a": 1.0}
    assert compare_terminal.verdict(row, "a", fact) == "confirmed: a fact, 1 measurement"
    assert compare_terminal.verdict(row | {"n_a": 0.0}, "a", effect) == "confirmed: no repetition of all its settings"


def test_nothing_is_cut(compared: comparison.Comparison) -> None:
    """However narrow the terminal, every number and word of the wide one is there."""
    wide = said(compared)
    for width in (50, 80, 100):
        console = Console(width=width, record=True, file=io.StringIO())
        compare_terminal.show(compared, console)
        text = console.export_text()
        assert text.count("…") == wide.count("…")
        assert max(map(len, text.splitlines())) <= width
        if width >= 80:
            assert set(re.findall(r"[\d.]+× \([\d.]+–[\d.]+\)", text)) >= set(
                re.findall(r"[\d.]+× \([\d.]+–[\d.]+\)", wide)
            )


def test_markdown_says_the_same(compared: comparison.Comparison) -> None:
    """The same parts and numbers as the terminal; tables that are whole."""
    text = compare_terminal.markdown(compared)
    terminal = said(compared)
    assert text.startswith("# feedrate: ")
    for number in re.findall(r"\d\.\d+× \([\d.]+–[\d.]+\)", text):
        assert number in terminal
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
    assert compare_terminal.markdown(compared) == text


def test_claims_whose_verdict_differs(fake_run: ModuleType, tmp_path: Path) -> None:
    """Claims that both tested are held against each other by their verdicts; agreement is counted."""
    what = {"claims": ("workers",), "suites": ("workers",), "fails": "none", "blocks": 4}
    fake_run.write(tmp_path, fake_run.Fake(**what))
    fake_run.write(tmp_path, fake_run.Fake(run_id=FAST, busy=True, cores=4, **what))
    found = comparison.compare(SLOW, FAST, tmp_path)
    assert len(found.verdicts) > 3
    text = said(found)
    same = int(found.verdicts["agree"].sum())
    assert f"Both tested {len(found.verdicts)} claims, {same} with the same verdict" in text
    for row in found.verdicts[~found.verdicts["agree"].astype(bool)].to_dict("records"):
        assert f"{row['claim']}: " in text


def test_runs_of_one_machine(results: Path) -> None:
    """A machine against itself is its repeatability: two of its runs, the older one as A."""
    machine = machines(results)[0]
    found = comparison.compare(machine, machine, results)
    assert (found.a.manifest.run_id, found.b.manifest.run_id) == (SLOW, "20260103T030405Z-late")
    assert found.found.overall.value == pytest.approx(1.0)
    text = said(found)
    assert "two runs of one machine" in text
    assert "Settings differ by 0.0 % (median)" in text
    assert re.search(r"(\d+) of \1 intervals include 1", text)


REPEATED = ("how well a run repeats", "include 1; of equal runs")
SAME = "The script's loader has the same settings in both."
SCRIPTS = [
    ({"workers": 4}, ("A → B: num_workers 2 → 4.", "real training on train.py  "), REPEATED),
    ({"hour": 5}, (SAME, *REPEATED), ("→ B:",)),
]
"""What B is, what is said of it beside the script's usual run, and what is not."""


@pytest.mark.parametrize(("b", "told", "never"), SCRIPTS)
def test_two_runs_of_a_script(
    written: Callable[..., Path], b: dict[str, Any], told: tuple[str, ...], never: tuple[str, ...]
) -> None:
    """How settings differ is said, and the waits; how well a run can be repeated only where nothing was changed."""
    text = said(of_written(written(), written(**b)))
    for words in (
        *told,
        "It waits for data ",
        "feedrate run -- train.py",
        "those of the same script, device and protocol",
    ):
        assert words in text, words
    for words in (*never, "None", "nan", " px", "<NA>"):
        assert words not in text, words
    assert re.search(r"This one setting: [\d.]+× \([\d.]+–[\d.]+, n = 32 and \d+\)\.", text)


def test_searches_are_compared_setting_by_setting(written: Callable[..., Path]) -> None:
    """Two searches are compared in the settings that both tried; a script as it is with a search in its own."""
    search = written(blocks=3)
    both = of_written(written(blocks=2), search)
    assert len(both.found.cells) > 1
    assert both.found.changed is None
    text = said(both)
    assert "feedrate tune -- train.py" in text
    assert "A → B:" not in text
    against = of_written(written(workers=0), search)
    assert against.found.cells["cell_id"].tolist() == [runs.find(str(search)).manifest.tuned[0].present]
    assert against.found.changed is None


WRONG: list[tuple[str, str, str]] = [
    ("", FAST, "A is missing; expected a machine's id"),
    (SLOW, "20260104T030405Z-fasd", "did you mean '20260104T030405Z-fast'"),
    (FAST, FAST, "A and B are the same run"),
    ("{results}", FAST, "a folder without a run"),
    ("\x1b[31mred", FAST, "A=red: names nothing"),
    ("x" * 5000, FAST, "names nothing"),
    ("{file}", FAST, "file.parquet"),
]


@pytest.mark.parametrize(("a", "b", "words"), WRONG)
def test_names_of_nothing(results: Path, tmp_path: Path, a: str, b: str, words: str) -> None:
    """What cannot be compared is said in one message with what was expected."""
    file = tmp_path / "file.parquet"
    file.write_bytes(b"PAR1" + b"\0" * 40 + b"PAR1")
    with pytest.raises(InputError, match=re.escape(words)):
        comparison.compare(a.format(results=results, file=file), b, results)


def test_nothing_in_common_is_said_with_reasons(results: Path, fake_run: ModuleType, tmp_path: Path) -> None:
    """Another device shares no cell: the reasons are counted, and what could be compared is said."""
    other = fake_run.write(
        tmp_path, fake_run.Fake(run_id="20260105T030405Z-cuda", cores=9, batches=(8,), device="cuda")
    )
    reasons = r"no setting in common.*different device: cpu in A, cuda in the other.*on one kind of device"
    with pytest.raises(InputError, match=reasons):
        comparison.compare(SLOW, str(other), results)


def test_the_command(results: Path, compared: comparison.Comparison) -> None:
    """`python -m feedrate compare A B` prints a report, with --markdown one to paste; B may be a run's file."""
    runner: Callable[..., Any] = CliRunner().invoke
    file = runs.find(FAST, results).folder / "trials.parquet"
    done = runner(app, ["compare", SLOW, str(file), "--results", str(results)])
    assert done.exit_code == 0, done.output
    assert "as fast as A" in done.output
    done = runner(app, ["compare", SLOW, FAST, "--results", str(results), "--markdown"])
    assert done.exit_code == 0
    assert done.output == compare_terminal.markdown(compared)
