"""Why a finding is as it is: the facts that separate machines, weighed by the code that changed, and who made it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.conf import settings

from server.detection.bisection.conclusion import together
from server.detection.bisection.walk import Walk, walk_of
from server.detection.models import Bisection, BisectionState, ChangePoint, Finding
from server.reports.composer.told import BranchRange, Culprit, Separation
from server.reports.composer.wording import distinct
from server.sources.models import Series
from server.sources.screened_mails import as_checked
from server.stats.explanation.search import Outcome

_SEPARATED = (Outcome.ONE, Outcome.SEVERAL)
# Routines of which the kernel has variants, and the features by which it chooses one.
_VARIANTS = (
    (
        re.compile(
            r"\b\w*(?:copy_(?:page|mc|user|to_user|from_user|highpage)|folio_(?:mc_)?copy|folio_zero|clear_(?:page|user|"
            r"huge|highpage|folio)|mem(?:cpy|set|move))\w*"
        ),
        frozenset({"erms", "fsrm", "fzrm", "fsrs", "fsrc", "rep_good", "mops"}),
    ),
    (
        re.compile(r"\b\w*(?:flush_tlb|tlb_flush|tlbi_|tlbbatch)\w*"),
        frozenset({"invlpgb", "pcid", "invpcid", "tlbirange"}),
    ),
)
_WORD = re.compile(r"[a-z0-9_]+")
# A finding stores so many facts that separate alike; there may be more.
_MOST_STORED = 10
_MOST_READ = 32
_KIND_OF_CORES = "core type is "
_CHANGED_LINE = re.compile(r"^(?:[-+](?![-+]{2} )|@@ ).*$", re.MULTILINE)


def separation(finding: Finding, uarchs: Mapping[str, str]) -> Separation | None:
    """The facts that separate, those first by which the kernel chooses what the patches touch; None without machines
    that could be compared.
    """
    told = [
        row
        for row in finding.explanations
        if row.get("outcome") in _SEPARATED and row.get("conditions") and not _is_column(row["conditions"])
    ]
    if not told:
        none = any(row.get("outcome") == Outcome.NONE for row in finding.explanations)
        return Separation((), (), ()) if none else None
    touched = touched_routines(finding)
    weighed = [(row, *_of_routines(row, touched)) for row in told]
    row, facts, features, routines = min(weighed, key=lambda one: (not one[1], _chance(one[0])))
    every = [*row["conditions"], *row.get("alike", [])]
    facts = facts or (*row["conditions"], *filter(_chooses_code, row.get("alike", [])))
    return Separation(
        facts=facts,
        changed=_named(row.get("changed", []), uarchs),
        others=_named(row.get("others", []), uarchs),
        routines=routines,
        features=features,
        rivals=len(every) - len(facts),
        uncounted=len(row.get("alike", [])) >= _MOST_STORED,
        machines=(len(row.get("changed", [])), len(row.get("others", []))),
        chance=row.get("chance"),
    )


def _chooses_code(fact: str) -> bool:
    """Whether the kernel chooses variants of some routine by it, which a reader would ask for next."""
    return any(features.intersection(_WORD.findall(fact.lower())) for _pattern, features in _VARIANTS)


def _is_column(conditions: Iterable[str]) -> bool:
    """Whether it only says what the heads of the columns say."""
    return all(text.startswith(_KIND_OF_CORES) for text in conditions)


def touched_routines(finding: Finding) -> dict[str, frozenset[str]]:
    """Routines with variants that the patches name in what they change or say they do, and the features of each."""
    texts = _of_patches(finding.series) if finding.series else [finding.culprit.subject] if finding.culprit else []
    found: dict[str, frozenset[str]] = {}
    for text in texts:
        for pattern, features in _VARIANTS:
            for name in pattern.findall(text):
                found.setdefault(name.strip("_"), features)
    return found


def _of_patches(series: Series) -> list[str]:
    """Subjects first: what they name, the patches are about."""
    patches = list(series.patches.select_related("message").order_by("index")[:_MOST_READ])
    changes = []
    for patch in patches:
        lines = _CHANGED_LINE.findall(as_checked(patch.message).body)
        changes.append("\n".join(lines))
    return [series.subject, *(patch.subject for patch in patches), *changes]


def _of_routines(
    row: Mapping[str, Any], touched: Mapping[str, frozenset[str]]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Which of its facts are features that choose a touched routine, what these are called, and which routines."""
    every = [str(text) for text in (*row["conditions"], *row.get("alike", []))]
    features = {feature for of_it in touched.values() for feature in of_it}
    facts = tuple(text for text in every if features.intersection(_WORD.findall(text.lower())))
    words = distinct(word for text in facts for word in _WORD.findall(text.lower()) if word in features)
    return facts, tuple(words), tuple(name for name, of_it in touched.items() if of_it.intersection(words))


def _chance(row: Mapping[str, Any]) -> float:
    chance = row.get("chance")
    return float(chance) if isinstance(chance, int | float) else 1.0


def _named(machines: Sequence[str], uarchs: Mapping[str, str]) -> tuple[str, ...]:
    """The machine, of several their microarchitectures; with the kind of cores where a machine has several."""
    if len(machines) == 1:
        return (machines[0],)
    named = []
    for name in machines:
        machine, kind, rest = name.partition(" (")
        named.append(f"{uarchs.get(machine, machine)}{kind}{rest}")
    return tuple(distinct(named))


_REGARDED = "target__case", "target__metric", "machine__uarch", "culprit"


def culprit_of(finding: Finding) -> Culprit | None:
    """What bisections and walk say; None where they say nothing yet."""
    sentence, walk = culprit_sentence(finding), walk_sentences(finding.series) if finding.series else ()
    found = finding.culprit if finding.series is None and sentence else None
    if not (sentence or walk or found):
        return None
    return Culprit(
        sentence=sentence,
        walk=walk,
        sha=found.sha if found else "",
        subject=found.subject if found else "",
        author=found.author if found else "",
    )


def culprit_sentence(finding: Finding) -> str:
    """What the bisections say together; empty where there was nothing to look for, or while one is under way."""
    bisections = list(finding.bisections.select_related(*_REGARDED).order_by("machine__name"))
    if not bisections or any(bisection.state not in Bisection.FINAL for bisection in bisections):
        return ""
    # Why a person ended a search is for this site, not for a list.
    said = together([one for one in bisections if one.state != BisectionState.CANCELED])
    return f"Bisection: {said}{'' if said.endswith('.') else '.'}" if said else ""


def walk_sentences(series: Series) -> tuple[str, ...]:
    """One for each patch, then whether they add up; nothing before all of them are measured."""
    walk = walk_of(series)
    return _sentences(walk) if walk is not None and walk.done else ()


def _sentences(walk: Walk) -> tuple[str, ...]:
    return (*(f"patch {row.index} {row.sentence}" for row in walk.rows), *walk.closing)


def range_of(finding: Finding) -> BranchRange | None:
    if finding.series_id is not None or finding.branch is None or finding.before is None or finding.after is None:
        return None
    point = ChangePoint.objects.filter(finding=finding).order_by("-score", "pk").first()
    return BranchRange(
        branch=finding.branch.name,
        good=finding.before.sha,
        good_subject=finding.before.subject,
        bad=finding.after.sha,
        bad_subject=finding.after.subject,
        timeline=f"{settings.SITE_URL.rstrip('/')}/timelines/{point.timeline_id}/" if point else "",
    )
