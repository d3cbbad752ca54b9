"""What the website may cost: figures are judged by the worst page, and what cannot be measured is said."""

from __future__ import annotations

from pathlib import Path

from harness.bench import site as bench_site
from harness.bench.browsed import Cost
from harness.bench.building import Built
from harness.bench.exploring import Changes


def cost(path: str, **changed: object) -> Cost:
    """A page that meets every target."""
    given = {
        "before_bytes": 100_000,
        "after_bytes": 400_000,
        "paints_ms": (400.0, 500.0, 900.0),
        "blocks_ms": (0.0, 100.0, 250.0),
    }
    return Cost(path, **{**given, **changed})  # type: ignore[arg-type]


def test_pages_are_judged_by_the_worst() -> None:
    """One page too heavy, too late or too busy misses the target, and is named; all good ones meet it."""
    fine = bench_site.judged([cost("a.html"), cost("b.html", before_bytes=149_000)], "results")
    assert [promise.met for promise in fine] == [True] * 4
    assert "149 kB (b.html; lightest 100 kB, n = 2 pages)" in fine[0].measured
    heavy = {
        "before_bytes": 151_000,
        "after_bytes": 501_000,
        "paints_ms": (1001.0, 1001.0, 1.0),
        "blocks_ms": (301.0, 302.0, 1.0),
    }
    for place, (name, value) in enumerate(heavy.items()):
        found = bench_site.judged([cost("a.html"), cost("b.html", **{name: value})], "results")
        assert [promise.met for promise in found] == [at != place for at in range(4)]
        assert "b.html" in found[place].measured


def test_times_are_medians_over_loads_with_their_spread() -> None:
    """One bad load of three decides nothing, and is seen in the range."""
    found = bench_site.judged([cost("a.html", paints_ms=(300.0, 310.0, 5000.0)), cost("b.html")], "results")
    assert found[2].met
    assert found[2].measured == "500 ms (400–900, n = 3 loads) of b.html; best page 310 ms, 2 pages"


def test_explore_is_judged_by_what_it_is_for() -> None:
    """Its first paint and a change of its filter have targets; its weight, with what draws, is told and not judged."""
    heavy = cost("explore.html", before_bytes=900_000, blocks_ms=(2000.0,) * 3)
    found = bench_site.of_explore(heavy, "results")
    assert found.met
    assert "900 kB" in found.measured
    assert not bench_site.of_explore(cost("explore.html", paints_ms=(1001.0,) * 3), "results").met
    change = bench_site.of_changes(Changes((150.0, 199.0, 600.0), 120.4))
    assert change.met
    assert change.measured == "199 ms (150–600, n = 3 changes), 120 ms of it CPU time of the page"
    assert not bench_site.of_changes(Changes((150.0, 201.0, 600.0), 120.4)).met


def test_a_build_is_judged_by_time_and_memory(tmp_path: Path) -> None:
    """Both have a target of their own; a file of cells that is too large is seen, sites without any are not asked."""
    built = Built("made up", tmp_path, 19.9, 2_100_000_000)
    assert [promise.met for promise in bench_site.of_build(built, 20)] == [True, False]
    assert [promise.met for promise in bench_site.of_build(built, 19)] == [False, False]
    assert bench_site.of_shards(built) == []
    (tmp_path / "explore").mkdir()
    (tmp_path / "explore" / "a.json").write_bytes(b"0" * 1_000_001)
    assert [promise.met for promise in bench_site.of_shards(built)] == [False]
