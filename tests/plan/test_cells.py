"""Plans: what a matrix becomes on a machine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from feedrate.plan import cells as expanding
from feedrate.plan import duration, matrix, schedule
from feedrate.schema import plugins
from feedrate.schema.errors import InputError
from feedrate.store.manifest import Spread

TEXT = """
version: 1
protocol: {{timeout_s: 30}}
suites: {{loader: [{slices}]}}
profiles: {{quick: {{{budget}}}}}
"""


COLD = "page_cache: cold, n_samples: 2048"


def expand(folder: Path, slices: str, *, device: str = "cpu", budget: str = "", **host: object) -> schedule.Plan:
    path = folder / "matrix.yaml"
    path.write_text(TEXT.format(slices=slices, budget=f"budget: {budget}" if budget else ""))
    return expanding.expand(matrix.load(path), schedule.Host(device, folder, **host))


def test_every_combination_is_a_cell_or_accounted_for(tmp_path: Path) -> None:
    """Cells, merged and excluded combinations add up to all combinations."""
    whole = matrix.load(plugins.ROOT / "matrix.yaml", "full")
    for device in ("cpu", "cuda"):
        plan = expanding.expand(whole, schedule.Host(device, tmp_path, shm_bytes=64 << 20))
        accounted = sum(c.count for c in (*plan.merged, *plan.excluded))
        assert len(plan.cells) + accounted == plan.combinations
        assert len({cell.cell_id for cell in plan.cells}) == len(plan.cells)


@pytest.mark.parametrize(
    ("place", "kept"),
    [
        ({}, [("ddp", 1, 2), ("ddp", 1, 3), ("ddp", 2, 2)]),
        ({"device": "cuda", "gpus": 1}, [("ddp", 2, 2)]),
        ({"device": "cuda", "gpus": 2}, [("ddp", 1, 2), ("ddp", 2, 2), ("dp", 1, 2)]),
    ],
)
def test_replicas_are_shared_out_among_nodes_and_devices(tmp_path: Path, place: dict, kept: list) -> None:
    """Nodes have equally many replicas, on CUDA a GPU each; dp stays on one; none has ceilings."""
    plan = expand(tmp_path, "{parallel: [dp, ddp], world_size: [2, 3], nodes: [1, 2]}", nodes=2, **place)
    assert sorted((str(c.axes["parallel"]), c.axes["nodes"], c.axes["world_size"]) for c in plan.cells) == kept
    assert sum(each.count for each in plan.excluded) == 8 - len(kept)
    assert not plan.ceilings


def test_merging_is_said_with_its_reason(tmp_path: Path) -> None:
    """Without CUDA the pinning axes merge, and the plan says which and why."""
    slices = "{num_workers: 1, pin_memory: [false, true], non_blocking: [false, true]}"
    plan = expand(tmp_path, slices)
    assert len(plan.cells) == 1
    assert [(c.count, c.reason) for c in plan.merged] == [(3, "pin_memory, non_blocking: no CUDA device here")]
    assert len(expand(tmp_path, slices, device="cuda").cells) == 4


FILES = "workload: imagefolder, storage_format: folder"
EXCLUDED = """
{batch_size: [8, 64], n_samples: 16} | | batch_size above n_samples
{batch_size: 8}, {mode: copy} | | mode copy needs a CUDA device
{step: [emulated, spin]} | | step spin needs a CUDA device
{fusion: [eager, cuda_graphs]} | | fusion cuda_graphs needs a CUDA device
{batch_size: 8}, {mode: check, check: pin_custom} | | check pin_custom needs a CUDA device
{FILES, mode: load, collate: fast, normalize_on: device, decoder: [pil, nvjpeg]} | | nvjpeg needs a CUDA device
{batch_size: 8}, {device: cuda, batch_size: 9} | | wanted on cuda only
{parallel: [none, dp], world_size: 2} | | parallel dp needs CUDA devices
{parallel: [none, dp]} | | nothing to compare
{parallel: [none, dp], world_size: 2, fusion: compile} | | copies the model
{parallel: [ddp, dp], world_size: 2, nodes: 2} | nodes: 2, device: cuda, gpus: 2 | dp is one process: it trains on one
{parallel: [none, ddp], world_size: 2, batch_size: 8, n_samples: 12} | | times world_size
{parallel: [none, ddp], storage_format: tfrecord, access: sequential} | | is streamed
{parallel: [none, ddp], cache: sample} | | evict or fill
{parallel: ddp, world_size: [2, 3], nodes: 2} | nodes: 2 | world_size 3 cannot be shared out evenly
{parallel: ddp, world_size: [2, 4], nodes: 2} | nodes: 2, device: cuda, gpus: 1 | 2 CUDA devices on each node; 1 here
{nodes: [1, 2]} | | more nodes than sweep together here, 1 (feedrate sweep --on slurm --nodes 8 --together)
{nodes: [2, 4]} | nodes: 3 | more nodes than sweep together here, 3
{batch_size: 8}, {workload: folder} | | --data DIR
{workload: synthetic}, {workload: pets, model: resnet18} | | feedrate data pets
{num_workers: [0, 4], batch_size: 512} | shm_bytes: 1048576 | /dev/shm
{workload: tokens, mode: load, storage_format: memmap, num_workers: 2, collate: fast,
    normalize_on: [worker, device]} |
    shm_bytes: 2000000 | prefetched batches would not fit into /dev/shm
{storage_format: tfrecord, access: [sequential, random]} | | tfrecord is streamed from shards: it has no
{storage_format: tfrecord, access: sequential, num_workers: [0, 33], batch_size: 4} | | more workers than shards
{storage_format: jpeg, decoder: [pil, pyspng]} | | decoder pyspng cannot decode jpeg
{FILES, mode: load, decoder: [pil, pyspng]} | | decoder pyspng cannot decode jpeg
{FILES, mode: load, decoder: [pil, kornia], scaled_decode: true} | | decoder kornia has no scaled decoding
{FILES, mode: load, collate: fast, decoder: nvjpeg, normalize_on: [worker, device]} | device: cuda |
    decoder nvjpeg is handed bytes: collate fast, normalize_on device
{workload: imagefolder, mode: load, storage_format: [folder, hdf5]} | | hdf5 holds images and tokens
{workload: tokens, mode: load, storage_format: [memmap, png]} | | png holds images, workload tokens has tokens
{storage_format: [png, folder]} | | storage_format folder holds files, workload synthetic has images
{workload: div2k, mode: [load, train], collate: fast, normalize_on: none} | | normalize_on none is for loading alone
{model: [srcnn, resnet18]} | | model resnet18 is for classification, workload synthetic for super-res
{FILES, model: [resnet50, vit_s16], patch_size: 72} | | images of multiples of 16 pixels, patch_size is 72
{FILES, model: vit_s16, vary_shapes: [false, true]} | | model vit_s16 takes images of one size
{FILES, model: resnet18, batch_size: 1, patch_size: [32, 33]} | | its batch norms need two samples below 33 pixels
{fusion: cuda_graphs, zero_grad: [none, memset]} | device: cuda | gradients that are kept lie in memory
{page_cache: [warm, cold]} | in_memory: true | page_cache cold: the data folder lies in memory
{page_cache: [warm, cold], prefetcher: stream} | device: cuda | with a prefetcher
{page_cache: cold, n_samples: [2048, 1631]} | | n_samples of 1,632 or more
{page_cache: cold, access: sequential, n_samples: [2048, 543]} | | n_samples of 544 or more
{COLD, storage_format: [png, memmap]} | read_ahead_bytes: 8388608 | 8,192 KiB are read around each sample of 24 KiB
{COLD, storage_format: lmdb, readahead: [true, false]} | read_ahead_bytes: 8388608 | 8,192 KiB are read around
{COLD, storage_format: [png, hdf5_chunked]} | | 360 KiB are read around
{COLD, storage_format: lmdb, access: [random, sequential]} | read_ahead_bytes: 8388608 | 8,192 KiB are read around
{COLD, storage_format: lmdb, read_ahead_kib: [8, 16]} | read_ahead_bytes: 8388608 | 16 KiB are read around each
{COLD, read_ahead_kib: [128, 64]} | read_ahead_bytes: 131072, unable: {read_ahead_kib: for root} |
    read_ahead_kib: for root
{COLD, memory_limit_mib: [0, 64]} | unable: {memory_limit_mib: for root} | memory_limit_mib: for root
{COLD, disk_mib_s: [0, 50]} | unable: {disk_mib_s: for root} | disk_mib_s: for root
{page_cache: full, n_samples: 9000, memory_limit_mib: [64, 0]} | | full needs a memory_limit_mib
{page_cache: full, memory_limit_mib: 64, n_samples: [2731, 2730]} | | n_samples of 2,731 or more
{page_cache: [warm, full], memory_limit_mib: 4} | in_memory: true | page_cache full: the data folder lies in memory
{page_cache: [warm, full], memory_limit_mib: 4} | unable: {memory_limit_mib: for root} | memory_limit_mib: for root
"""
"""Slices of which one combination cannot run, what is known of the machine, and the reason."""


@pytest.mark.parametrize("line", re.split(r"\n(?! )", EXCLUDED.strip()))
def test_what_cannot_run_is_excluded_with_its_reason(line: str, tmp_path: Path) -> None:
    """A combination that cannot run here is left out, counted, and the reason says why."""
    slices, place, reason = (part.strip() for part in line.replace("COLD", COLD).replace("FILES", FILES).split("|"))
    plan = expand(tmp_path, slices, **yaml.safe_load(f"{{{place}}}"))
    assert len(plan.cells) == 1
    assert [c.count for c in plan.excluded] == [1]
    assert reason in plan.excluded[0].reason


def test_a_missing_library_excludes_its_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A format whose library is not installed is left out with the command that installs it."""
    monkeypatch.setattr(plugins, "missing", lambda _, name: {"lmdb": "lmdb"} if name == "lmdb" else {})
    plan = expand(tmp_path, "{storage_format: [png, lmdb]}")
    assert len(plan.cells) == 1
    assert "pip install lmdb" in plan.excluded[0].reason


def test_a_knob_merges_where_a_format_has_none(tmp_path: Path) -> None:
    """Readahead is LMDB's, swmr HDF5's, a decoder that of stored image files, a shuffle buffer that of streams."""
    slices = "{storage_format: lmdb, readahead: [true, false], swmr: [true, false], decoder: [pil, cv2]}"
    plan = expand(tmp_path, slices)
    assert [cell.axes["readahead"] for cell in plan.cells] == [True, False]
    assert all(not {"swmr", "decoder", "shuffle_buffer"} & set(cell.axes) for cell in plan.cells)
    assert plan.merged[0].count == 6
    assert "decoder, swmr: no knob of storage_format = lmdb" in plan.merged[0].reason
    streamed = expand(tmp_path, "{storage_format: tfrecord, access: sequential, shuffle_buffer: [0, 100]}")
    assert [cell.axes["shuffle_buffer"] for cell in streamed.cells] == [0, 100]


def test_div2k_is_never_silently_something_else(tmp_path: Path) -> None:
    """Without the archive the stand-in takes its place under its own name; with photographs, the folder does."""
    plan = expand(tmp_path, "{workload: div2k}")
    assert plan.cells[0].axes["workload"] == "div2k_standin"
    assert "div2k_standin" in plan.substitutions[0]
    assert expand(tmp_path, "{workload: div2k}", data=tmp_path).cells[0].axes["workload"] == "folder"
    (tmp_path / schedule.DIV2K_FOLDERS[-1]).mkdir()
    assert expand(tmp_path, "{workload: div2k}").substitutions, "a folder that is not whole is none"
    (tmp_path / schedule.DIV2K_FOLDERS[-1] / "cut.json").touch()
    real = expand(tmp_path, "{workload: div2k}")
    assert real.cells[0].axes["workload"] == "div2k"
    assert not real.substitutions


def test_too_many_cells_and_none_are_refused(tmp_path: Path) -> None:
    """A huge matrix is refused with its count, one without a possible cell with the reason."""
    many = ", ".join(map(str, range(1, 1001)))
    with pytest.raises(InputError, match=r"1,000,000 combinations.*--yes"):
        expand(tmp_path, f"{{batch_size: [{many}], n_samples: [{many}]}}")
    with pytest.raises(InputError, match=r"no setting can run here: 1 × mode copy"):
        expand(tmp_path, "{mode: copy}")


def test_time_comes_from_earlier_runs_and_cuts_make_room(tmp_path: Path) -> None:
    """Cells cost what they took here before; cuts are advised if five blocks do not fit."""
    slices = "{mode: load, batch_size: [8, 16, 32, 64], num_workers: [0, 2]}"
    first = expand(tmp_path, slices)
    known = {cell.cell_id: 5.0 for cell in first.cells}
    plan = expand(tmp_path, slices, budget="100s", seconds=known)
    assert plan.block_s == duration.TEMPLATE_S + 40
    assert plan.blocks == 2
    assert plan.cuts()
    assert not expand(tmp_path, slices, budget="1h", seconds=known).cuts()


def test_planning_loads_neither_torch_nor_pandas(tmp_path: Path) -> None:
    """`feedrate plan`, and the parent of a sweep with its probes, import no heavy library."""
    code = (
        "import sys; from feedrate.cli import app; from feedrate.sweep import screen, sweep\n"
        f"try: app(['plan', '--results', {str(tmp_path)!r}])\n"
        "except SystemExit: pass\n"
        "bad = {'torch', 'pandas', 'numpy', 'pyarrow', 'scipy'} & set(sys.modules)\n"
        "sys.exit(f'loaded {bad}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=plugins.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "combinations" in done.stdout


def test_ceilings_are_planned_once_for_all_cells_that_share_them(tmp_path: Path) -> None:
    """A training cell's stages run alone, for the sub-axes that they depend on and not for every cell."""
    plan = expand(tmp_path, "{batch_size: 8, num_workers: [0, 2], step: [real, emulated]}")
    modes = sorted((str(cell.axes["mode"]), cell.axes.get("num_workers")) for cell in plan.ceilings)
    assert modes == [("compute", None), ("load", 0), ("load", 2)]
    assert {cell.role for cell in plan.ceilings} == {"ceiling"}
    assert {len(stages) for stages in plan.ceilings_of.values()} == {1, 2}
    slices = "{pin_memory: [false, true], non_blocking: [false, true]}"
    cuda = expand(tmp_path, slices, device="cuda")
    assert sorted(str(cell.axes["mode"]) for cell in cuda.ceilings) == ["compute", *["copy"] * 4, *["load"] * 2]


def test_blocks_are_predicted_from_the_spread_seen_before(tmp_path: Path) -> None:
    """A noisy machine needs more blocks; what arises within windows is told apart."""
    slices = "{num_workers: [0, 2, 4]}"
    assert expand(tmp_path, slices).outlook() is None
    ids = [cell.cell_id for cell in expand(tmp_path, slices).cells]
    quiet, noisy = (
        expand(tmp_path, slices, spread={key: Spread(sd=sd, within=sd / 2) for key in ids}).outlook()
        for sd in (0.005, 0.05)
    )
    assert (quiet.half, quiet.most) == (8, 8)
    assert 15 < noisy.half <= 30
    assert quiet.within == pytest.approx(0.25)
