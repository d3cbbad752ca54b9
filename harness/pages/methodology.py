"""The methodology page: prose from ``site/pages/methodology.md``, every number and table in it from the harness itself.

The prose holds no figures. Where one belongs stands its name in double braces; what a name means is said here, once, by
the constant that the harness itself uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from html import escape

from harness import margins, registry
from harness.analysis import ceilings, claims, loading, noise, pipeline, prediction, telemetry, variance
from harness.analysis.blocks import CONFIDENCE
from harness.analysis.estimators import ESTIMATORS
from harness.asking import ERROR, LEAST_BLOCKS
from harness.axes import AXES
from harness.manifest import Protocol
from harness.matrix import DEFAULT_PROTOCOL
from harness.pages import markup, rules
from harness.pages.markup import Page
from harness.pages.sources import SIMULATED, SOURCES
from harness.pages.trust import PARTS_SPOKEN
from harness.plan import CEILING_WINDOW_S
from harness.probes import gpu
from harness.probes import noise as probed
from harness.records import PROTOCOL_VERSION
from harness.running import GIVE_UP_AFTER
from harness.traits import STREAM_SHARDS, traits
from harness.window import COLD, LEAST_WARM_UP, STEADY, WARM

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
        "small": 100 * (margins.CONFIRMED_OVER - 1),
        "clear": 100 * (margins.SAME[1] - 1),
        "correlated": variance.CORRELATED,
        "fewest_for_drift": noise.FEWEST_FOR_DRIFT,
        "rate_within": prediction.RATE_WITHIN_PCT,
        "wait_within": prediction.WAIT_WITHIN_MS,
        "pipeline_steps": pipeline.STEPS,
        "bins": telemetry.BINS,
        "least_bin": telemetry.LEAST_BIN_S,
        "settle_s": gpu.SETTLE_NS / 1e9,
        "gpu_window_s": gpu.LEAST_WINDOW_NS / 1e9,
    }
    return {name: f"{value:g}" for name, value in shown.items()} | {
        "whole": "100\u00a0%",
        "half": f"{100 * loading.FETCHING:g}\u00a0%",
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
        "rules": rules.refusing(),
        "caps": rules.capped(),
        "odd": rules.flagging(),
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
    for name in registry.names("harness.formats"):
        its = traits(name)
        stored = f"{its.stores}{' (lossy)' if its.lossy else ''}"
        order = "as it lies in its shard" if its.streamed else "any"
        rows.append((f"<code>{name}</code>", its.container, stored, order, ", ".join(its.knobs) or "–"))
    return markup.table("Storage formats", columns, rows, stack=True)


def _verdicts() -> str:
    low, high = (f"{abs(100 * (edge - 1)):g}" for edge in margins.SAME)
    inside = f"±{high} %" if low == high else f"−{low} % to +{high} %"
    over, under = f"{margins.CONFIRMED_OVER:g}", f"{margins.REFUTED_UNDER:g}"
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
