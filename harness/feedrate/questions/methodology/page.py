"""The methodology page: prose from ``site/pages/methodology.md``, every number and table in it from the harness itself.

The prose holds no figures. Where one belongs stands its name in double braces; what a name means is said here, once, by
the constant that the harness itself uses.

The rules for files that come from others, as tables for the page that says how feedrate works.

What the methodology rests on: publications, and figures that were simulated here.

Simulated figures are those of the rule itself under normal log throughputs: they say how often a rule is right, and
nothing about any machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from feedrate.analysis import ceilings, claims, loader, noise, pipeline, prediction, variance
from feedrate.analysis.blocks import CONFIDENCE
from feedrate.analysis.estimators import ESTIMATORS
from feedrate.machine.probes import gpu
from feedrate.machine.probes import noise as probed
from feedrate.pages import markup
from feedrate.pages.markup import Page
from feedrate.plan.claim_selection import ERROR, LEAST_BLOCKS
from feedrate.plan.matrix import DEFAULT_PROTOCOL
from feedrate.plan.schedule import CEILING_WINDOW_S
from feedrate.questions.runs import analysis as runs_analysis
from feedrate.questions.runs.trust import PARTS_SPOKEN
from feedrate.schema import metrics, plugins
from feedrate.schema.axes import AXES
from feedrate.schema.columns import PROTOCOL_VERSION
from feedrate.schema.plugins import STREAM_SHARDS, traits
from feedrate.schema.window import COLD, LEAST_WARM_UP, STEADY, WARM
from feedrate.share.receive import BESIDE
from feedrate.share.validation import caps, check, flags, validator
from feedrate.share.validation.findings import Rule, Validated
from feedrate.share.validation.guard import READABLE
from feedrate.store.manifest import Protocol
from feedrate.sweep.run import GIVE_UP_AFTER


def refusing() -> str:
    """Write the rules by which a file is refused."""
    return _table(
        "Rules by which a file is refused", "What holds", (*validator.rules(), READABLE, check.UNIQUE, BESIDE)
    )


def flagging() -> str:
    """Write the rules by which a file is flagged."""
    return _table("What is flagged for a reviewer", "What is odd", flags.RULES)


def capped() -> str:
    """Write how much of a file is looked at."""
    rows = [(_named(cap.name), escape(f"{cap.most:,} {cap.unit}"), escape(cap.why)) for cap in caps.CAPS]
    return markup.table("Most that is accepted", ("Cap", "At most", "Why that is enough"), rows, stack=True)


def _table(caption: str, what: str, rules: Iterable[Rule]) -> str:
    rows = [(_named(rule.name), escape(rule.says)) for rule in rules]
    return markup.table(caption, ("Rule", what), rows, stack=True)


def _named(name: str) -> str:
    """The name of a rule or a cap, where findings link to."""
    return f'<code id="rule-{escape(name)}">{escape(name)}</code>'


def left_out(refused: Sequence[Validated]) -> str:
    """Write which runs are not shown because they break a rule, and why; nothing where there is none.

    Args:
        refused: as ``incoming.check.admitted`` gives them.
    """
    if not refused:
        return ""
    rows = []
    for each in refused:
        folder, reason = Path(each.path), each.refusals[0]
        rule = f'<a href="../methodology.html#rule-{reason.rule}"><code>{escape(reason.rule)}</code></a>'
        got = f"{reason.where}: {reason.got}; expected {reason.expected}"
        rows.append((escape(f"{folder.parent.name}/{folder.name}"), rule, escape(got)))
    said = "These runs lie below results/ and break a rule for published files. No page and no number draws on them."
    columns = ("Run", "Rule", "What was found")
    table = markup.table("Runs that are left out", columns, rows, stack=True)
    return markup.heading(2, "Left out", "left-out") + markup.paragraph(said) + table


@dataclass(frozen=True, slots=True)
class Source:
    """A publication that a rule comes from."""

    cited: str
    """As the text names it."""
    full: str
    link: str | None
    """Where it can be read."""
    gives: str
    """What is taken from it."""


SOURCES = {
    "dsanalyzer": Source(
        "DS-Analyzer (Mohan and others 2021)",
        "J. Mohan, A. Phanishayee, A. Raniwala, V. Chidambaram: Analyzing and Mitigating Data Stalls in DNN Training. "
        "Proceedings of the VLDB Endowment 14(5), 2021",
        "https://arxiv.org/abs/2007.06775",
        "ceilings by differential analysis",
    ),
    "roofline": Source(
        "the roofline model (Williams and others 2009)",
        "S. Williams, A. Waterman, D. Patterson: Roofline: An Insightful Visual Performance Model for Multicore "
        "Architectures. Communications of the ACM 52(4), 2009",
        "https://doi.org/10.1145/1498765.1498785",
        "one roof for the cells of all tasks",
    ),
    "mlperf": Source(
        "MLPerf Storage",
        "MLCommons: MLPerf Storage benchmark suite, rules and source",
        "https://github.com/mlcommons/storage",
        "the emulated step, accelerator utilization (AU)",
    ),
    "student": Source(
        "Student (1908)",
        "Student: The Probable Error of a Mean. Biometrika 6(1), 1908",
        "https://doi.org/10.1093/biomet/6.1.1",
        "the interval of a mean",
    ),
    "welch": Source(
        "Welch (1947)",
        "B. L. Welch: The Generalization of ‘Student’s’ Problem when Several Different Population Variances are "
        "Involved. Biometrika 34(1–2), 1947",
        "https://doi.org/10.1093/biomet/34.1-2.28",
        "the interval of a difference between runs",
    ),
    "holm": Source(
        "Holm (1979)",
        "S. Holm: A Simple Sequentially Rejective Multiple Test Procedure. Scandinavian Journal of Statistics 6(2), "
        "1979",
        None,
        "claims that are judged together",
    ),
    "fishman": Source(
        "Fishman (1978)",
        "G. S. Fishman: Grouping Observations in Digital Simulation. Management Science 24(5), 1978",
        None,
        "the spread within a window from batches of its steps",
    ),
    "pytorch": Source(
        "PyTorch",
        "PyTorch: torch.utils.data.dataloader, source of _MultiProcessingDataLoaderIter",
        "https://github.com/pytorch/pytorch/blob/main/torch/utils/data/dataloader.py",
        "the order of events in the model of the pipeline",
    ),
}


@dataclass(frozen=True, slots=True)
class Simulated:
    """A figure that was simulated, and the rule that rests on it."""

    found: str
    rule: str


SIMULATED = {
    "stopping": Simulated(
        "an interval that is checked after every block from 8 on, and stops when it is narrow, covers the truth in "
        "93 to 95 % of cases",
        "nothing stops before the fewest blocks",
    ),
    "same": Simulated(
        "at 15 blocks, two equal settings are told to be no different in 90 % of cases where paired ratios spread by "
        "3 %, in 7 % at a spread of 6 %, in 0.2 % at 8.5 %",
        "longer windows before more claims",
    ),
    "confirm": Simulated(
        "“over 1” confirms a true difference of 1 % in 72 % of cases at 60 blocks",
        "the margin of a verdict",
    ),
    "steps": Simulated(
        "with 10 trials of 200 steps and a spread of 3 % between trials, a “95 %” interval over steps covers the truth "
        "in 20 % of cases, one over trials in 95 %",
        "blocks are the unit of repetition",
    ),
    "certain": Simulated(
        "of runs with 30 claims that all lie right at a verdict’s margin, the worst case, looked at after every one of "
        "30 blocks, 2.7 % become certain of a wrong verdict",
        "claims stop when they are certain",
    ),
    "reach": Simulated(
        "of runs with 8 claims that all lie right at a verdict’s margin, whose last 40 turns go where a verdict is "
        "nearest, 3.1 % end with a wrong one",
        "time goes to the claims that it can decide",
    ),
    "order": Simulated(
        "under a drift of 5 % over a run, two equal settings are called different in 71 % of cases when they run one "
        "after the other, in 5.3 % when blocks are random and pairs compared",
        "a random order, and pairs by block",
    ),
    "pairs": Simulated(
        "a perfect test at 5 % calls more than 1 of 20 equal pairs different in 26 % of cases",
        "calibration allows 3 of 20",
    ),
}
"""Keys are those of ``site/pages/methodology.md``."""


PATH = "methodology.md"
_NAME = re.compile(r"\{\{(\w+)\}\}")
_KIND = re.compile(r"\{\{(\w+):(.+?)\}\}")
_HEADING = re.compile(r"^## (.+?) \{ #([\w-]+) \}$", re.MULTILINE)


def page(text: str) -> Page:
    """Write the page.

    Args:
        text: the prose; Markdown with ``{{name}}`` and ``{{kind:argument}}``.

    Raises:
        KeyError: the prose asks for something that is not known here.
    """
    values = {**numbers(), **tables(), "contents": _contents(text)}
    known = _NAME.sub(lambda match: values[match[1]], text)
    return Page(PATH, "Methodology", _KIND.sub(lambda match: _KINDS[match[1]](match[2]), known))


def _formula(text: str) -> str:
    return f'<p class="fr-formula">{text}</p>'


def _cited(name: str) -> str:
    return f'<a href="#source-{name}">{escape(SOURCES[name].cited)}</a>'


def _said(name: str) -> str:
    return f"{escape(SIMULATED[name].found)} ([simulated here](#simulated))"


_KINDS: dict[str, Callable[[str], str]] = {"formula": _formula, "source": _cited, "simulated": _said}


def numbers() -> dict[str, str]:
    """Every single figure of the prose, by its name there."""
    protocol = Protocol.model_validate(DEFAULT_PROTOCOL)
    shown = {
        "protocol_version": PROTOCOL_VERSION,
        "give_up_after": GIVE_UP_AFTER,
        "window_s": protocol.window_s,
        "min_steps": protocol.min_steps,
        "warm_up_steps": LEAST_WARM_UP,
        "steady": STEADY,
        "cold": 100 * COLD,
        "warm": 100 * WARM,
        "shards": STREAM_SHARDS,
        "confidence": 100 * CONFIDENCE,
        "balanced_within": ceilings.BALANCED_WITHIN,
        "most": 100 * ceilings.MOST,
        "ceiling_window_s": CEILING_WINDOW_S,
        "alpha": 100 * claims.ALPHA,
        "alpha_share": claims.ALPHA,
        "ci_target_pct": protocol.ci_target_pct,
        "fewest": protocol.blocks[0],
        "most_blocks": protocol.blocks[1],
        "control_every": protocol.control_every,
        "certain_from": LEAST_BLOCKS,
        "certain_error": ERROR,
        "small": 100 * (metrics.CONFIRMED_OVER - 1),
        "clear": 100 * (metrics.SAME[1] - 1),
        "correlated": variance.CORRELATED,
        "fewest_for_drift": noise.FEWEST_FOR_DRIFT,
        "rate_within": prediction.RATE_WITHIN_PCT,
        "wait_within": prediction.WAIT_WITHIN_MS,
        "pipeline_steps": pipeline.STEPS,
        "bins": runs_analysis.BINS,
        "least_bin": runs_analysis.LEAST_BIN_S,
        "settle_s": gpu.SETTLE_NS / 1e9,
        "gpu_window_s": gpu.LEAST_WINDOW_NS / 1e9,
    }
    return {name: f"{value:g}" for name, value in shown.items()} | {
        "whole": "100\u00a0%",
        "half": f"{100 * loader.FETCHING:g}\u00a0%",
        "unknown_at_best": noise.UNKNOWN_AT_BEST,
    }


def tables() -> dict[str, str]:
    """Every table of the page, by its name in the prose."""
    return {
        "estimators": _estimators(),
        "verdicts": _verdicts(),
        "variance": _variance(),
        "grade": _grade(),
        "flags": _flags(),
        "derived": _derived(),
        "planted": _planted(),
        "formats": _formats(),
        "simulated": _simulated(),
        "rules": refusing(),
        "caps": capped(),
        "odd": flagging(),
        "sources": _sources(),
    }


def _contents(text: str) -> str:
    items = "".join(f'<li><a href="#{name}">{escape(title)}</a></li>' for title, name in _HEADING.findall(text))
    return f'<nav class="fr-contents" aria-label="Contents of this page"><ul>{items}</ul></nav>\n'


def _estimators() -> str:
    rows = [
        (escape(each.label), escape(each.fault or "Nothing that the external clock shows."), escape(each.used_by))
        for each in ESTIMATORS
    ]
    columns = ("Throughput as", "What is wrong with it", "Who does so")
    return markup.table("Ways to state throughput", columns, rows, stack=True)


def _formats() -> str:
    columns = ("Format", "Container", "A sample is stored as", "Read in order", "Knobs")
    rows = []
    for name in plugins.names("feedrate.formats"):
        its = traits(name)
        stored = f"{its.stores}{' (lossy)' if its.lossy else ''}"
        order = "as it lies in its shard" if its.streamed else "any"
        rows.append((f"<code>{name}</code>", its.container, stored, order, ", ".join(its.knobs) or "–"))
    return markup.table("Storage formats", columns, rows, stack=True)


def _verdicts() -> str:
    low, high = (f"{abs(100 * (edge - 1)):g}" for edge in metrics.SAME)
    inside = f"±{high} %" if low == high else f"−{low} % to +{high} %"
    over, under = f"{metrics.CONFIRMED_OVER:g}", f"{metrics.REFUTED_UNDER:g}"
    rows = (
        ("no difference", "no difference", f"the interval lies inside {inside}"),
        ("faster, slower", "confirmed", f"its lower end is over {over}, in the direction that is asked about"),
        ("slower, faster", "refuted", f"its upper end is under {under}"),
        ("inconclusive", "inconclusive", "none of these"),
    )
    return markup.table("Verdicts", ("A comparison says", "Of a claim it says", "Where"), rows, stack=True)


def _variance() -> str:
    causes = {
        "within": "A window is short: another stretch of the same trial would have given another number.",
        "between": "The rest: one start of the process, or one minute, differs from the next.",
        "drift": "The machine gets slower or faster as the run goes on.",
    }
    rows = [
        (escape(PARTS_SPOKEN[part].capitalize()), escape(causes[part]), escape(variance.ADVICE[part]))
        for part in variance.PARTS
    ]
    return markup.table("Parts of the spread", ("Part", "Why", "What lessens it"), rows, stack=True)


def _grade() -> str:
    letters = noise.LETTERS[: len(noise.CRITERIA[0].limits)]
    rows = [
        (
            f'<strong id="grade-{each.name}">{escape(each.name.capitalize())}</strong>',
            *(f"{'≥' if each.at_least else '≤'} {limit:g} {escape(each.unit)}" for limit in each.limits),
            escape(each.doc),
        )
        for each in noise.CRITERIA
    ]
    last = noise.LETTERS[len(letters)]
    columns = ("Criterion", *letters, "What is judged, and why from there")
    return markup.table("Criteria of the grade", columns, rows, stack=True) + markup.paragraph(
        f"What is beyond the limit of {letters[-1]} is {last}.", "fr-note"
    )


def _flags() -> str:
    seen: set[str] = set()
    rows = []
    for rule in probed.RULES:
        anchor = "" if rule.flag in seen else f' id="flag-{rule.flag}"'
        seen.add(rule.flag)
        limits = "<br>".join(
            f"{_measure(limit.measure)} &gt; {limit.over:g} {escape(limit.unit)}" for limit in rule.limits
        )
        rows.append((f"<code{anchor}>{escape(rule.flag)}</code>", limits, escape(rule.doc)))
    return markup.table("Rules of the flags", ("Flag", "Raised when", "Why from there"), rows, stack=True)


def _measure(name: str) -> str:
    target = f"#measure-{name}" if name in probed.DERIVED else f"dictionary.html#trials-{name}"
    return f'<a href="{target}"><code>{escape(name)}</code></a>'


def _derived() -> str:
    rows = [
        (f'<code id="measure-{name}">{escape(name)}</code>', escape(doc)) for name, (_, doc) in probed.DERIVED.items()
    ]
    return markup.table("Measures that rules compute", ("Measure", "What it is"), rows, stack=True)


def _planted() -> str:
    named = [axis for axis in AXES if axis.doc.startswith("Planted: ") or axis.name == "replica"]
    rows = [
        (
            f'<a href="dictionary.html#axis-{axis.name}"><code>{axis.name}</code></a>',
            escape(_sentence(axis.doc.removeprefix("Planted: "))),
        )
        for axis in named
    ]
    return markup.table("What is planted", ("Axis", "What it does"), rows, stack=True)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _simulated() -> str:
    rows = [(escape(_sentence(each.found)), escape(_sentence(each.rule))) for each in SIMULATED.values()]
    return markup.table("Simulated figures", ("Simulated here", "The rule that rests on it"), rows, stack=True)


def _sources() -> str:
    return markup.table("Sources", ("Source", "What is taken from it"), _source_rows(), stack=True)


def _source_rows() -> Iterable[tuple[str, str]]:
    for name, each in SOURCES.items():
        full = f'<a href="{escape(each.link)}">{escape(each.full)}</a>' if each.link else escape(each.full)
        yield f'<span id="source-{name}">{full}</span>', escape(_sentence(each.gives))
