"""What the stored runs found, in five sentences for whoever reads no more: for the front page and for the README.

Every number of them is made from records: of the newest run that asks which settings suit its machine, of the claims
that the newest machine with any has tested, and of the newest record of ``make bench``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.analysis.claim_words import estimate
from harness.analysis.estimators import frame, summary
from harness.bench_record import BenchRecord
from harness.charts import _words as words
from harness.pages import accuracy, claims, described
from harness.pages.gathered import Shown
from harness.pages.headlines import gain_words
from harness.pages.verdicts import Told, Verdicts

STORED = "lmdb-over-png"
"""The claim that tells what storing decoded pixels is worth."""
_BEFORE = {
    "emulated": "before an emulated step of {step_ms:g} ms",
    "train": "in real training",
}
_SPOKEN = {
    "confirmed": "hold",
    "refuted": "do not",
    "no difference": "make no difference",
    "inconclusive": "are open",
}
"""Verdicts as a count of sentences has them."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One finding."""

    text: str
    """Plain text, with spread and n."""
    page: str
    """Path of the page that has more of it."""
    source: str
    """The run or the record that it was made from."""


def sentences(runs: Sequence[Shown], told: Verdicts, benches: Sequence[BenchRecord]) -> list[Sentence]:
    """Say what was found; what no record tells is left out.

    Args:
        runs: of suites that ask which settings suit a machine, newest first.
        told: what the records say of the sources' claims.
        benches: what ``make bench`` found.
    """
    return [*(_gained(runs[0]) if runs else ()), *_claimed(told), *_accurate(benches)]


def _gained(shown: Shown) -> Iterator[Sentence]:
    """What better settings of the loader gain, where that is most."""
    rows = [row for row in shown.headlines.to_dict("records") if row["gain"] is not None and row["kind"] in _BEFORE]
    clear = [row for row in rows if row["gain"]["verdict"] == "faster"]
    if not clear:
        return
    row = max(clear, key=lambda row: float(row["gain"]["lo"]))
    gain = row["gain"]
    settings = gain_words(gain)[1].split(": ")[1]
    where = _BEFORE[row["kind"]].format(step_ms=row["step_ms"])
    yield Sentence(
        f"On {described.machine_name(shown.run)}: {where}, {settings} feed {words.number(gain['ratio'])} times as "
        f"many samples as PyTorch’s default DataLoader does ({words.interval(gain['lo'], gain['hi'], gain['n'])} "
        f"blocks; {row['workload']} at {row['patch_size']} px from {gain['storage_format']}, batches of "
        f"{gain['batch_size']}).",
        shown.page,
        _run(shown),
    )


def _claimed(told: Verdicts) -> Iterator[Sentence]:
    """What the machine says of the claims that has tested most of them; of several the one that was measured last."""
    own = [[part[at] for part in told.told.values() if part[at].tested] for at in range(len(told.places))]
    tested = max(own, key=len, default=[])
    mine = {each.claim.id: each for each in tested}
    if not mine:
        return
    newest = max((each.shown for each in mine.values()), key=lambda shown: shown.manifest.started_at)
    machine = described.machine_name(newest.run)
    if (stored := mine.get(STORED)) and words.known(stored.row["ratio"]):
        yield Sentence(
            f"What a sample is stored as matters: decoded pixels in LMDB are read {_effect(stored)} as fast as PNG "
            f"files, averaged over {words.plural(len(stored.cases), 'setting')}, from memory and from the disk.",
            f"{claims.PATH}#claim-{STORED}",
            _run(stored.shown),
        )
    falls = [each for each in tested if each.verdict == "refuted"]
    counts = Counter(each.verdict for each in tested)
    said = words.listed(f"{counts[verdict]} {verb}" for verdict, verb in _SPOKEN.items() if counts[verdict])
    yield Sentence(
        f"Of {len(tested)} sentences on faster training, tested on {machine}: {said}.",
        claims.PATH,
        _run(newest),
    )
    if falls:
        listed = words.listed(f"“{each.claim.says.rstrip('.')}” ({_short(each)})" for each in falls)
        yield Sentence(f"What does not hold there: {listed}.", claims.PATH, _run(newest))


def _run(shown: Shown) -> str:
    return f"run {shown.manifest.run_id}"


def _effect(told: Told) -> str:
    row = told.row
    return f"{words.number(row['ratio'])} times ({words.interval(row['lo'], row['hi'], int(row['n']))} blocks)"


def _short(told: Told) -> str:
    if not words.known(told.row["ratio"]):
        return "a fact that was looked at"
    return f"{estimate(told.row)}, n = {int(told.row['n'])}"


def _accurate(benches: Sequence[BenchRecord]) -> Iterator[Sentence]:
    """How far to trust the throughput itself."""
    witnessed = [bench for bench in benches if bench.witnessed]
    for bench in sorted(witnessed, key=lambda bench: bench.started_at)[-1:]:
        if said := accuracy.ours(summary(frame(bench.witnessed))):
            yield Sentence(said, accuracy.PATH, f"record {bench.name}")
