"""The methodology page: prose from ``site/pages/methodology.md``, every number and table in it from the harness itself.

The prose is a template without figures of its own: where one belongs it names the constant that the harness itself
uses. Simulated figures (``simulated.md``) are those of a rule under normal log throughputs: they say how often the rule
is right, and nothing about any machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from feedrate.analysis import (
    ceilings,
    claims,
    crossfit,
    diagnosis,
    estimate,
    loader,
    noise,
    pipeline,
    pooling,
    verdicts,
)
from feedrate.analysis.estimators import ESTIMATORS
from feedrate.attach import causes, loop, predictions, profiler, tune
from feedrate.machine.probes import gpu
from feedrate.machine.probes import noise as probed
from feedrate.pages import markup
from feedrate.pages.markup import Page
from feedrate.pages.template import render
from feedrate.plan import claim_selection, evidence, schedule
from feedrate.plan.matrix import DEFAULT_PROTOCOL
from feedrate.questions.methodology import simulations
from feedrate.questions.runs import telemetry
from feedrate.schema import metrics, plugins, window, words
from feedrate.schema.axes import AXES
from feedrate.schema.columns import PROTOCOL_VERSION
from feedrate.schema.plugins import RESOURCES, traits
from feedrate.share import findings, rules
from feedrate.store.manifest import Protocol
from feedrate.sweep import blocks, launcher

PATH, SHORT_PATH = "methodology.md", "method.md"
_MODULES = (
    *(ceilings, claim_selection, claims, crossfit, diagnosis, estimate, evidence, gpu, loader, metrics, noise),
    *(blocks, causes, launcher, loop, pipeline, plugins, pooling, predictions, profiler, schedule),
    *(simulations, telemetry, tune, verdicts, window),
)
"""Those whose constants the prose names."""


def page() -> Page:
    """Write the page."""
    contents = markup.contents((RESOURCES / "site" / "pages" / PATH).read_text(encoding="utf-8"))
    body = render(PATH, contents=contents, protocol_version=PROTOCOL_VERSION, **_constants(), **tables())
    return Page(PATH, "Every rule", body)


def short_page() -> Page:
    """Write what most readers need to know of it."""
    return Page(SHORT_PATH, "How it is measured", render(SHORT_PATH, **_constants()))


def _constants() -> dict[str, Any]:
    """The modules whose constants the prose names, and the protocol that comes with feedrate."""
    modules = {module.__name__.rpartition(".")[2]: module for module in _MODULES}
    return modules | {"protocol": Protocol.model_validate(DEFAULT_PROTOCOL)}


def tables() -> dict[str, Any]:
    """Rows of tables of the page by their names in the prose."""
    letters = noise.LETTERS[: len(noise.CRITERIA[0].limits)]
    return {
        "estimators": [
            (estimator.label, estimator.fault or "Nothing that the external clock shows.", estimator.used_by)
            for estimator in ESTIMATORS
        ],
        "formats": list(_formats()),
        "letters": list(letters),
        "worst_letter": noise.LETTERS[len(letters)],
        "criteria": list(_criteria()),
        "spreads": words.listed([f"{100 * spread:g}" for spread in simulations.SPREADS]),
        "worth": [
            (words.capital(name), *(words.per_cent(100 * share, 1) for share in shares))
            for name, shares in simulations.SIMULATED.items()
        ],
        "faults": [
            (words.capital(name), blocks, *(words.per_cent(100 * share, 1) for share in shares))
            for (name, blocks), shares in simulations.FAULTS_SIMULATED.items()
        ],
        "flag_rules": list(_flags()),
        "derived": [(_anchor(f"measure-{name}", name), derived.doc) for name, derived in probed.DERIVED.items()],
        "planted": list(_planted()),
        "refusing": [
            (rule.__name__.removeprefix("check_").capitalize(), " ".join(str(rule.__doc__).split()))
            for rule in rules.STATED
        ],
        "caps": [(markup.code(cap.name), f"{cap.most:,} {cap.unit}", cap.why) for cap in findings.CAPS],
    }


def _anchor(target: str, name: str) -> Markup:
    return Markup('<code id="{}">{}</code>').format(target, name)


def _formats() -> Iterator[tuple[object, ...]]:
    for name in plugins.names("feedrate.formats"):
        its = traits(name)
        stored = f"{its.stores}{' (lossy)' if its.lossy else ''}"
        order = "as it lies in its shard" if its.streamed else "any"
        yield markup.code(name), its.container, stored, order, ", ".join(its.knobs) or "–"


def _criteria() -> Iterator[tuple[object, ...]]:
    for criterion in noise.CRITERIA:
        limits = (f"{'≥' if criterion.at_least else '≤'} {limit:g} {criterion.unit}" for limit in criterion.limits)
        name = Markup('<strong id="grade-{}">{}</strong>').format(criterion.name, criterion.name.capitalize())
        yield name, *limits, criterion.doc


def _flags() -> Iterator[tuple[object, ...]]:
    """Rules of the flags; the first rule of a flag is where links to the flag lead."""
    seen: set[str] = set()
    for rule in probed.RULES:
        name = markup.code(rule.flag) if rule.flag in seen else _anchor(f"flag-{rule.flag}", rule.flag)
        seen.add(rule.flag)
        limits = []
        for limit in rule.limits:
            target = "#measure" if limit.measure in probed.DERIVED else "dictionary.md#trials"
            link = markup.link(PATH, f"{target}-{limit.measure}", markup.code(limit.measure))
            limits.append(Markup("{} &gt; {:g} {}").format(link, limit.over, limit.unit))
        yield name, Markup("<br>").join(limits), rule.doc


def _planted() -> Iterator[tuple[object, ...]]:
    for axis in AXES:
        if axis.doc.startswith("Planted: ") or axis.name == "replica":
            name = markup.link(PATH, f"dictionary.md#axis-{axis.name}", markup.code(axis.name))
            yield name, words.capital(axis.doc.removeprefix("Planted: "))
