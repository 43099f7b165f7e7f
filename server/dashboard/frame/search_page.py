"""One box for everything that has a name: what somebody writes is looked up as each kind of name that it may be."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from urllib.parse import unquote, urlsplit

from django.conf import settings
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from server.builds.models import Build
from server.core.rows.together import read_together
from server.detection.findings.filters import of_author, of_commit
from server.detection.models import Finding
from server.lab.models import Machine, Microarchitecture, Session
from server.results.models import Benchmark
from server.sources.mail.postings import Marks, parse_subject
from server.sources.models import Message, Patch, Revision, Series, Tree
from server.sources.series.requests import holding

LONGEST = 300
_SHOWN = 10
_MOST_WORDS = 6
# Subjects have no index of words: those of the newest rows are read.
_NEWEST = 20_000
_SHORT = 12
_SHA = re.compile(r"[0-9a-f]{7,40}")
_NUMBERED = re.compile(r"(?:(finding|series|session|build)s?\s*)?#?([0-9]{1,18})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Hit:
    """`is_exact`: it is what was written, and not only something that holds it."""

    title: str
    about: str
    address: str
    is_exact: bool = False


@dataclass(frozen=True, slots=True)
class HitGroup:
    name: str
    hits: tuple[Hit, ...]
    has_more: bool


@require_safe
def search(request: HttpRequest) -> HttpResponse:
    """What is exactly what was written is gone to at once, if it is the only one that is."""
    asked = " ".join(request.GET.get("q", "").replace("\0", " ").split())[:LONGEST]
    groups = tuple(answers(asked)) if asked else ()
    exact = {hit.address for group in groups for hit in group.hits if hit.is_exact}
    if len(exact) == 1:
        return redirect(exact.pop())
    context = {"searched": asked, "groups": groups, "newest": _NEWEST}
    return render(request, "dashboard/search.html", context)


def answers(asked: str) -> Iterator[HitGroup]:
    """Groups with a hit, by how much the text looks like such a name. A bounded number of queries."""
    newest = _Newest()
    kinds: tuple[tuple[str, Callable[[str], Iterable[Hit]]], ...] = (
        ("By number", _numbers),
        ("Commits", _commits),
        ("Mails and series by Message-ID", _mails),
        ("Machines, microarchitectures, benchmarks and trees", _names),
        ("Authors", partial(_authors, newest)),
        ("Series by subject", partial(_subjects, newest)),
        ("Patches by subject", partial(_patches, newest)),
        ("Measured commits by subject", partial(_revisions, newest)),
    )
    for name, find in kinds:
        hits = list(find(asked))
        if hits:
            yield HitGroup(name, tuple(hits[:_SHOWN]), len(hits) > _SHOWN)


def _numbers(asked: str) -> Iterator[Hit]:
    match = _NUMBERED.fullmatch(asked)
    if match is None:
        return
    kind, number = (match[1] or "").lower(), int(match[2])
    if kind in ("", "finding"):
        for finding in _findings().filter(pk=number):
            yield _of_finding(finding, is_exact=bool(kind))
    if kind in ("", "series"):
        for series in Series.shown().filter(pk=number).only("subject", "author_name"):
            yield _of_series(series, is_exact=bool(kind))
    if kind == "session":
        for session in Session.objects.filter(pk=number).select_related("machine").only("machine__name"):
            address = reverse("session", args=[number])
            yield Hit(f"Session {number}", f"on {session.machine.name}", address, is_exact=True)
    if kind == "build":
        for build in Build.objects.filter(pk=number).only("arch"):
            yield Hit(f"Build {number}", build.arch, reverse("build", args=[number]), is_exact=True)


def _commits(asked: str) -> Iterator[Hit]:
    """A commit has no page of its own: what is told of it."""
    sha = asked.lower()
    if not _SHA.fullmatch(sha):
        return
    found = list(Revision.objects.filter(sha__startswith=sha).select_related("tree").order_by("sha")[: _SHOWN + 1])
    if not found:
        return
    told = list(of_commit(_findings(), sha)[: _SHOWN + 1])
    series = list(
        Series.shown().filter(Q(head__in=found) | Q(base__in=found)).only("subject", "author_name").order_by("-id")[:5]
    )
    builds = list(Build.objects.filter(revision__in=found).only("arch", "state").order_by("-id")[:5])
    single = len(found) == 1 and len(told) + len(series) + len(builds) == 1
    for revision in found if len(found) > 1 or not (told or series or builds) else ():
        address = f"{reverse('finding-list')}?{urlencode({'commit': revision.sha})}"
        yield Hit(f"{revision.sha[:_SHORT]} {revision.subject}", f"in {revision.tree.name}", address)
    about = f"{found[0].sha[:_SHORT]} {found[0].subject}" if len(found) == 1 else ""
    for finding in told:
        yield _of_finding(finding, about, is_exact=single)
    for row in series:
        yield _of_series(row, about, is_exact=single)
    for build in builds:
        address = reverse("build", args=[build.pk])
        yield Hit(f"Build {build.pk}, {build.arch}, {build.state}", about, address, single)


def message_id_in(asked: str) -> str:
    """Out of angle brackets, or out of the address of an archive, as lore.kernel.org/r/ID/."""
    text = asked.removeprefix("Message-ID:").removeprefix("Message-Id:").strip().strip("<>")
    if "//" in text:
        try:
            parts = urlsplit(text).path.split("/")
        except ValueError:
            return ""
        text = next((unquote(part) for part in parts if "@" in unquote(part)), "")
    return text.replace("\0", "") if "@" in text and " " not in text else ""


def _mails(asked: str) -> Iterator[Hit]:
    name = message_id_in(asked)
    if not name:
        return
    series = list(holding(name).filter(canary=False).only("subject", "author_name").order_by("-id")[: _SHOWN + 1])
    for row in series:
        yield _of_series(row, is_exact=len(series) == 1)
    mails = Message.shown().filter(message_id=name).only("subject", "sender_address").order_by("-id")[: _SHOWN + 1]
    for mail in mails:
        address = reverse("message", args=[mail.pk])
        yield Hit(mail.subject or "a mail without a subject", f"mail of {mail.sender_address}", address, not series)


def _names(asked: str) -> Iterator[Hit]:
    if len(asked) > 100 or " " in asked:  # noqa: PLR2004 (longer than any name)
        return
    machines, uarchs, benchmarks, trees = read_together(
        _beginning(Machine.objects.all(), asked, "uarch__name"),
        _beginning(Microarchitecture.objects.all(), asked, "title"),
        _beginning(Benchmark.objects.all(), asked),
        _beginning(Tree.objects.all(), asked),
    )
    for name, uarch in machines:
        yield Hit(name, f"machine, {uarch}", reverse("machine", args=[name]), _same(name, asked))
    listed = reverse("finding-list")
    for name, title in uarchs:
        address = f"{listed}?{urlencode({'regressed_on': name})}"
        yield Hit(name, f"microarchitecture, {title}: what regressed on it", address, _same(name, asked))
    for (name,) in benchmarks:
        address = f"{listed}?{urlencode({'benchmark': name})}"
        yield Hit(name, "benchmark: findings that claim a change in it", address, _same(name, asked))
    for (name,) in trees:
        yield Hit(name, "tree", reverse("tree", args=[name]), _same(name, asked))


def _beginning(rows: "QuerySet[Any, Any]", asked: str, *more: str) -> "QuerySet[Any, Any]":
    return rows.filter(name__istartswith=asked).order_by("name").values_list("name", *more)[:_SHOWN]


def _same(name: str, asked: str) -> bool:
    return name.lower() == asked.lower()


class _Newest:
    """The newest rows, of which subjects are read; how far they reach is asked once for all."""

    @cached_property
    def _last(self) -> tuple[int, int]:
        series, revisions = read_together(
            Series.objects.order_by("-pk").values_list("pk")[:1], Revision.objects.order_by("-pk").values_list("pk")[:1]
        )
        return (series[0][0] if series else 0), (revisions[0][0] if revisions else 0)

    def series(self) -> QuerySet[Series]:
        return Series.shown().filter(pk__gt=self._last[0] - _NEWEST)

    def patches(self) -> QuerySet[Patch]:
        """But those that are named as their series is, which is found itself."""
        rows = Patch.objects.filter(series__gt=self._last[0] - _NEWEST, series__canary=False).exclude(
            subject=F("series__subject")
        )
        return rows.select_related("series")

    def revisions(self) -> QuerySet[Revision]:
        return Revision.objects.filter(pk__gt=self._last[1] - _NEWEST)


def _authors(newest: _Newest, asked: str) -> Iterator[Hit]:
    """By address, or by the name as it stands in mails."""
    if "@" in asked:
        address = asked.rpartition("<")[2].strip("> ")
        if of_author(_findings(), address).exists():
            where = f"{reverse('finding-list')}?{urlencode({'author': address})}"
            yield Hit(f"Findings in series of {address}", "", where)
        written = Series.shown().filter(author_address__iexact=address)
    else:
        written = newest.series().filter(author_name__iexact=asked)
    for row in written.only("subject", "author_name").order_by("-id")[: _SHOWN + 1]:
        yield _of_series(row)


def _subjects(newest: _Newest, asked: str) -> Iterator[Hit]:
    """Also as it was posted or answered: the marks before it say which version is meant."""
    marks = parse_subject(asked)
    title = marks.title or asked
    named = newest.series().filter(_words(title)).only("subject", "author_name", "version", "minor")
    for row in named.order_by("-id")[: _SHOWN + 1]:
        yield _of_series(row, is_exact=_same(row.subject, title) and _is_meant(row, marks))


def _patches(newest: _Newest, asked: str) -> Iterator[Hit]:
    marks = parse_subject(asked)
    title = marks.title or asked
    for row in newest.patches().filter(_words(title)).order_by("-series", "index")[: _SHOWN + 1]:
        is_exact = _same(row.subject, title) and _is_meant(row.series, marks)
        about = f"patch {row.index}/{row.series.total} of {row.series}"
        yield Hit(row.subject, about, reverse("series", args=[row.series_id]), is_exact)


def _is_meant(series: Series, marks: Marks) -> bool:
    return not marks.patch or series.number == (marks.version, marks.minor)


def _revisions(newest: _Newest, asked: str) -> Iterator[Hit]:
    """Of a tree: what applying a series made has the subjects of its patches."""
    rows = (
        newest.revisions()
        .filter(_words(parse_subject(asked).title or asked), foreign=False)
        .select_related("tree")
        .order_by("-id")
    )
    for row in rows[: _SHOWN + 1]:
        address = f"{reverse('search')}?{urlencode({'q': row.sha})}"
        yield Hit(f"{row.sha[:_SHORT]} {row.subject}", f"in {row.tree.name}", address)


def _words(asked: str) -> Q:
    """Every word, anywhere in the subject."""
    wanted = Q()
    for word in asked.split()[:_MOST_WORDS]:
        wanted &= Q(subject__icontains=word)
    return wanted


def _findings() -> QuerySet[Finding]:
    rows = Finding.shown().only("headline", "state", "virtual").order_by("-id")
    return rows if settings.VIRTUAL_VERDICTS else rows.filter(virtual=False)


def _of_finding(finding: Finding, about: str = "", *, is_exact: bool = False) -> Hit:
    told = f"{finding.state}{', ' if about else ''}{about}"
    return Hit(f"Finding {finding.pk}: {finding.headline}", told, reverse("finding", args=[finding.pk]), is_exact)


def _of_series(series: Series, about: str = "", *, is_exact: bool = False) -> Hit:
    told = f"series of {series.author_name}{', ' if about else ''}{about}"
    return Hit(series.subject or f"Series {series.pk}", told, reverse("series", args=[series.pk]), is_exact)
