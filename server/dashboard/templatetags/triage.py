"""The box by which a triager decides about one finding: a page of it takes one line."""

from typing import Any

from django import template

from server.detection.branches.release import Why
from server.detection.lifecycle.triage import TRIAGE, triagers
from server.detection.models import Finding

register = template.Library()


@register.inclusion_tag("dashboard/_triage.html", takes_context=True)
def triage(context: dict[str, Any], finding_id: int, seen: int) -> dict[str, Any]:
    """Tells who looks after the finding; two queries more for who may decide.

    `seen` is how far its life had come before the page was read: what the page shows is what the form tells back.
    """
    request = context["request"]
    finding = Finding.objects.select_related("assignee").only("state", "assignee__username").get(pk=finding_id)
    may_triage = request.user.has_perm(TRIAGE)
    return {
        "finding_id": finding_id,
        "seen": seen,
        "state": finding.state,
        "assignee": finding.assignee.get_username() if finding.assignee else "",
        "may_triage": may_triage,
        "is_known": request.user.is_authenticated,
        "people": list(triagers().values_list("username", flat=True)) if may_triage else [],
        "reasons_why": [why.value for why in Why],
        "given": dict.fromkeys(("reason", "why", "until", "assignee", "of"), ""),
        "here": request.path,
        "csrf_token": context.get("csrf_token", ""),
    }
