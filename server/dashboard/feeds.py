"""Findings as Atom feeds: of the whole site, and of one tree."""

import hashlib
import re
from datetime import datetime
from urllib.parse import urlsplit

from django.conf import settings
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.urls import reverse
from django.utils.cache import get_conditional_response
from django.utils.feedgenerator import Atom1Feed
from django.utils.html import format_html, format_html_join
from django.utils.http import quote_etag
from django.views.decorators.http import require_safe

from server.core.models import Transition
from server.dashboard.trees.found import FoundLine, findings_named, found_lines
from server.detection.findings.filters import CLAIMS
from server.detection.models import Finding
from server.sources.models import Tree

_ENTRIES = 40
# XML has no way to write these, not even escaped.
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@require_safe
def findings(request: HttpRequest) -> HttpResponseBase:
    return _feed(request, "Findings", reverse("finding-list"), Finding.shown())


@require_safe
def tree(request: HttpRequest, name: str) -> HttpResponseBase:
    """Of its branches, and of series that were applied to it."""
    if not Tree.objects.filter(name=name).exists():
        raise Http404(f"There is no tree {name}.")
    of_branches = Finding.objects.filter(branch__tree__name=name)
    of_series = Finding.shown().filter(series__base__tree__name=name)
    rows = Finding.objects.filter(pk__in=of_branches.order_by().values("pk").union(of_series.order_by().values("pk")))
    return _feed(request, f"Findings of {name}", reverse("tree", args=[name]), rows)


def _feed(request: HttpRequest, title: str, page: str, rows: "QuerySet[Finding]") -> HttpResponseBase:
    lines = found_lines(findings_named(_told(rows)).order_by("-state_since", "-pk")[:_ENTRIES])
    feed = Atom1Feed(
        title=f"Tidemark: {title}",
        link=_address(page),
        description="What got slower or faster, and on which microarchitecture.",
        feed_url=_address(request.path),
        feed_guid=_permanent(request.path),
        language="en",
    )
    for line in lines:
        _add(feed, line)
    response = HttpResponse(content_type="application/atom+xml; charset=utf-8")
    feed.write(response, "utf-8")
    # Of what it says: a finding that is withdrawn or made anew may leave the newest moment, or its second, as it was.
    mark = quote_etag(hashlib.sha256(response.content).hexdigest())
    response["ETag"] = mark
    return get_conditional_response(request, etag=mark, response=response) or response


def _told(rows: "QuerySet[Finding]") -> "QuerySet[Finding]":
    """Claims that were confirmed once. What was withdrawn later stays in, and says so; what never stood is no news."""
    stood = Transition.objects.filter(subject="finding", subject_id=OuterRef("pk"), after__in=Finding.STANDING)
    # Where all of a claim was taken away it is of another kind by now.
    claimed = Q(kind__in=CLAIMS) | Q(state=Finding.State.INVALID)
    return rows.filter(claimed, Exists(stood)).exclude(state=Finding.State.CANDIDATE)


def _add(feed: Atom1Feed, line: FoundLine) -> None:
    withdrawn = line.state in (Finding.State.INVALID, Finding.State.SUPERSEDED)
    headline = f"{line.state_label.capitalize()}: {line.headline}" if withdrawn else line.headline
    feed.add_item(
        title=_plain(headline),
        link=_address(reverse("finding", args=[line.id])),
        description=_plain(_text(line)),
        unique_id=_permanent(f"/findings/{line.id}", line.created_at),
        pubdate=line.created_at,
        updateddate=line.state_since,
        categories=[line.kind, *(chip.uarch for chip in line.chips)],
        author_name="Tidemark",
    )


def _text(line: FoundLine) -> str:
    """HTML: what made it, and what each microarchitecture says."""
    where = f"{line.tree}/{line.branch}" if line.branch else "a series"
    made = f"commit {line.culprit[:12]}" if line.culprit else ""
    if not made and line.before:
        made = f"between {line.before[:12]} and {line.after[:12]}"
    told = format_html("<p>{}: {}{}</p>", where, line.title, f" ({made})" if made else "")
    state = format_html("<p>State: {}{}</p>", line.state_label, f": {line.reason}" if line.reason else "")
    chips = format_html_join(
        "", "<li>{}: {} {} {}</li>", ((chip.uarch, chip.verdict, chip.said, chip.of) for chip in line.chips)
    )
    return str(format_html("{}{}<ul>{}</ul>", told, state, chips))


def _permanent(path: str, since: datetime | None = None) -> str:
    """A name that stays, whatever becomes of the address (RFC 4151)."""
    day = since.date().isoformat() if since else "2026-01-01"
    return f"tag:{urlsplit(settings.SITE_URL).hostname},{day}:{path.strip('/')}"


def _address(path: str) -> str:
    return f"{settings.SITE_URL.rstrip('/')}{path}"


def _plain(text: str) -> str:
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
