"""Figures as files: every kind of each, a bibliography that holds, and no picture drawn twice."""

from __future__ import annotations

import filecmp
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pypdfium2
import pytest
from typer.testing import CliRunner

from feedrate.charts.citation import bibliography, data_hash
from feedrate.cli import app
from feedrate.pages.markup import Placed
from feedrate.pages.runs import load_runs
from feedrate.questions.runs import page as runs_page
from feedrate.schema.errors import InputError
from feedrate.site import build as site_build
from feedrate.site import figures

PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" width="30" height="20"><rect width="9" height="9" fill="{}"/></svg>'


def size(png: bytes) -> tuple[int, int]:
    """Width and height of a PNG, from its header."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def drawn(pictures: dict[str, str], kept: Path, folder: Path) -> None:
    with figures.drawing(kept) as drawing:
        for name, picture in pictures.items():
            drawing.add(name, picture)
        drawing.put(folder)


@pytest.fixture(scope="module")
def of_page(fake_script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Placed]]:
    """The run of a script, which has few figures, and all figures of its page."""
    results = tmp_path_factory.mktemp("figures")
    fake_script.write(results, fake_script.Script(steps=60))
    (shown,) = load_runs(results)
    return results, figures.placed([runs_page.page(shown)])


@pytest.fixture(scope="module")
def written(of_page: tuple[Path, list[Placed]], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Placed]]:
    """A folder, and the figures that were written there."""
    folder, found = tmp_path_factory.mktemp("out"), of_page[1][:2]
    figures.write(found, folder)
    return folder, found


@pytest.mark.slow
def test_another_process_writes_the_same_bytes(
    of_page: tuple[Path, list[Placed]], written: tuple[Path, list[Placed]], tmp_path: Path
) -> None:
    """The command, run by itself with other hashes of text, writes every figure alike; a PDF alone may differ."""
    (results, every), here, there = of_page, written[0], tmp_path / "there"
    command = [sys.executable, "-m", "feedrate", "figures", "--results", str(results), "--out", str(there)]
    done = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True)
    assert f"{len(every)} figures" in done.stdout
    assert len(every) > 4
    texts = {Path(path).name: text for figure in every for path, text in figure.files.items()}
    assert len(texts) == 3 * len(every)
    texts["figures.bib"] = bibliography([figure.citation for figure in every if figure.citation])
    assert {name: (there / name).read_text(encoding="utf-8") for name in texts} == texts
    names = [path.name for path in here.iterdir() if path.suffix not in (".pdf", ".bib")]
    same, different, errors = filecmp.cmpfiles(here, there, names, shallow=False)
    assert (different, errors) == ([], [])
    assert len(same) > 8


@pytest.mark.slow
def test_every_figure_comes_in_every_kind(written: tuple[Path, list[Placed]]) -> None:
    """Those of the website, those for papers, and nothing else but the bibliography."""
    folder, found = written
    names = {figure.name for figure in found}
    assert len(names) == len(found) == 2
    kinds = {".svg", ".png", ".pdf", ".csv", ".vl.json"}
    kinds |= {f"-{mm}mm.{end}" for mm in (89, 183) for end in ("svg", "pdf")}
    expected = {f"{name}{kind}" for name in names for kind in kinds} | {"figures.bib"}
    assert {path.name for path in folder.iterdir()} == expected
    for name in names:
        svg = (folder / f"{name}.svg").read_text(encoding="utf-8")
        width, height = (int(part) for part in re.findall(r'\b(?:width|height)="(\d+)"', svg)[:2])
        assert size((folder / f"{name}.png").read_bytes()) == (2 * width, 2 * height)
        assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF-")


@pytest.mark.slow
@pytest.mark.parametrize("millimetres", [89, 183])
def test_papers_get_their_width_and_text_of_seven_points(millimetres: int, written: tuple[Path, list[Placed]]) -> None:
    """As wide as a column or two to half a millimetre, in SVG and PDF; every text has 7 points; no title."""
    folder, found = written
    for figure in found:
        stem = folder / f"{figure.name}-{millimetres}mm"
        svg = Path(f"{stem}.svg").read_text(encoding="utf-8")
        (width,) = re.findall(r'<svg [^>]*?\bwidth="([\d.]+)mm"', svg)
        assert float(width) == pytest.approx(millimetres, abs=0.5)
        with pypdfium2.PdfDocument(Path(f"{stem}.pdf")) as document:
            assert document[0].get_width() / 72 * 25.4 == pytest.approx(millimetres, abs=0.5)
        sizes = set(re.findall(r'font-size="([\d.]+)px"', svg))
        assert {round(float(size) * 0.75, 1) for size in sizes} == {7.0}
        assert figure.citation
        assert figure.citation.title not in svg


def test_the_bibliography_holds_each_figure_with_the_hash_of_its_table(of_page: tuple[Path, list[Placed]]) -> None:
    """One entry a figure under a key of its own; its hash is that of the CSV beside it, and stands in the picture."""
    _, every = of_page
    text = bibliography([figure.citation for figure in every if figure.citation])
    keys = re.findall(r"^@misc\{(.*),$", text, re.MULTILINE)
    assert len(set(keys)) == len(keys) == len(every)
    for figure, key in zip(every, keys, strict=True):
        (table,) = (content for path, content in figure.files.items() if path.endswith(".csv"))
        printed = data_hash(table.encode())
        assert key == f"feedrate-{figure.name}-{printed[:6]}"
        assert printed in text.partition(key)[2].partition("\n\n")[0]
        assert printed in figure.picture


@pytest.mark.slow
def test_what_has_not_changed_is_not_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two pictures one changes: only that one is drawn, and what nobody wants any more is removed."""
    kept, folder = tmp_path / "kept", tmp_path / "out"
    first = {"a": PICTURE.format("red"), "b": PICTURE.format("blue")}
    drawn(first, kept, folder)
    before = {path.name: path.stat() for path in kept.iterdir()}
    assert len(before) == 4
    drawn(first | {"b": PICTURE.format("green")}, kept, folder)
    after = {path.name: path.stat() for path in kept.iterdir()}
    assert len(after) == 4
    assert len(before.items() & after.items()) == 2
    monkeypatch.setattr(figures.raster, "convert", lambda *_: pytest.fail("drawn again"))
    b = (folder / "b.png").read_bytes()
    drawn({"b": PICTURE.format("green")}, kept, folder)
    assert (folder / "b.png").read_bytes() == b
    assert len(list(kept.iterdir())) == 2


@pytest.mark.slow
def test_without_results_there_is_nothing_to_write(tmp_path: Path) -> None:
    """No figure: refused with what to type; a folder with other files in it stays as it is; the command has help."""
    with pytest.raises(InputError, match="make sweep"):
        site_build.write_figures(tmp_path / "results", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="did not make"):
        site_build.write_figures(tmp_path / "results", tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    told = CliRunner().invoke(app, ["figures", "--help"])
    assert told.exit_code == 0
    assert "figures.bib" in told.output
