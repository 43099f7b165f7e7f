"""Fills the lab's database: weeks of a branch on one simulated fleet, then published series on another."""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.models import User

from demo.lab.figures import FOUNDING, studies
from demo.lab.history.branch import HEAD_EVERY, play
from demo.lab.history.truth import make_truth
from demo.lab.replay.player import measure_noise, playing
from server.detection.models import Finding, FindingVerdict
from server.sources.models import Branch, MailingList, Tree

Say = Callable[[str], None]
# Of the branch: enough that its fleet knows itself, one change for all, one for a single microarchitecture and a split.
_SEED, _REVISIONS, _MACHINES, _CHANGES, _BENCHMARKS = 1, 60, 3, 3, 3
_NOISE_HOURS = 72.0
_NIGHTS = 5
PERSON = "lab"


def load_history(say: Say) -> None:
    """A branch whose last head came a moment ago."""
    settings.NOISE_HOURS = _NOISE_HOURS
    truth = make_truth(
        _SEED, revisions=_REVISIONS, machines=_MACHINES, changes=_CHANGES, maintenance=1, benchmarks=_BENCHMARKS
    )
    say(f"{_REVISIONS} revisions of a branch, a head every {HEAD_EVERY.seconds // 3600} hours, on {_MACHINES} machines")
    play(truth, _SEED, lambda line: say(f"  {line.strip()}"), past=HEAD_EVERY * _REVISIONS)


def load_series(say: Say) -> None:
    """Each posted, built, measured, judged and reported, one after the other."""
    known = studies()
    with playing(known, seed=_SEED, state=settings.STATE_DIR) as player:
        say(f"{_NIGHTS} nights without work: machines measure how noisy they are")
        measure_noise(player, _NIGHTS)
        for study in known:
            say(f"posted: {study.title}")
            finding = player.play(study.name)
            say(f"  {finding.headline if finding else 'no change was found'}")


def rest() -> None:
    """Nobody polls what is nowhere, and nobody is to wonder why."""
    Tree.objects.update(enabled=False)
    MailingList.objects.update(enabled=False)


@dataclass(frozen=True)
class Expectation:
    what: str
    ok: bool


def expectations() -> Iterator[Expectation]:
    """What a lab must hold that shows what the service is for."""
    founding = founding_finding()
    verdicts = dict(FindingVerdict.objects.filter(finding=founding).values_list("uarch__name", "verdict"))
    yield Expectation("the batched copy is a split", founding is not None and founding.kind == Finding.Kind.SPLIT)
    yield Expectation("it regressed on zen3", verdicts.get("zen3") == "regressed")
    yield Expectation("it improved on zen5", verdicts.get("zen5") == "improved")
    yield Expectation("a change of the branch was found", branch_findings() > 0)


def founding_finding() -> Finding | None:
    return Finding.objects.filter(series__mailing_list__name=FOUNDING).order_by("pk").first()


def branch_findings() -> int:
    return Finding.objects.filter(branch__isnull=False, state__in=Finding.STANDING).count()


def pages() -> Iterator[tuple[str, str]]:
    """Where to begin: a path, and what is seen there."""
    founding = founding_finding()
    if founding is not None:
        yield f"/series/{founding.series_id}/", "one series, opposite verdicts on zen3 and zen5"
        yield f"/findings/{founding.pk}/", "what is claimed of it, and why"
    for branch in Branch.objects.filter(measured__isnull=False).select_related("tree").distinct():
        yield f"/trees/{branch.tree.name}/", f"a branch over time: {branch_findings()} findings stand"


def admit() -> str:
    """The password, new at each start, of the person who may do all here."""
    password = secrets.token_urlsafe(9)
    person = User.objects.filter(username=PERSON).first() or User.objects.create_superuser(PERSON)
    person.set_password(password)
    person.save()
    return password
