"""What a finding says, as other systems write it down: a Patchwork check, a KCIDB report, regzbot lines, trailers.

Each is made of rows alone. A virtual finding has none: what was measured there is no evidence elsewhere either.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from django.conf import settings

from server.core.errors import DomainError
from server.core.rounding import seen_effect
from server.detection.findings.result import cells_of
from server.detection.findings.vector import as_speed, heard
from server.detection.models import Comparison, Finding, FindingVerdict, Verdict
from server.lab.models import Session
from server.reports.composer.evidence import is_virtual
from server.sources.models import Patch, Series

_KCIDB_VERSION = {"major": 5, "minor": 3}
_NOT_IN_PATH = re.compile(r"[^A-Za-z0-9_-]+")
_NOT_PRINTED = re.compile(r"[^\x20-\x7e]+")
# Patchwork's column.
_LONGEST_DESCRIPTION = 255
_CHECK_CONTEXT = "tidemark"
# Withdrawn, replaced or accepted: nobody should act on it.
_OVER = (Finding.State.INVALID, Finding.State.SUPERSEDED)
_CHECK_STATES = {
    Finding.Kind.REGRESSED: "fail",
    Finding.Kind.SPLIT: "warning",
    Finding.Kind.IMPROVED: "success",
    Finding.Kind.UNCHANGED: "success",
    Finding.Kind.INCONCLUSIVE: "pending",
}
_TEST_STATUS = {Verdict.REGRESSED: "FAIL", Verdict.IMPROVED: "PASS", Verdict.UNCHANGED: "PASS"}


def patchwork_check(finding: Finding) -> dict[str, Any]:
    """`message_id` of the last patch, at which the check stands, and the `check` as Patchwork's API takes it.

    DomainError `not-for-it` for what is no finding of a series, or virtual.
    """
    series = _series_of(finding)
    last = series.patches.order_by("-index").select_related("message").only("message__message_id").first()
    if last is None:
        raise DomainError("not-for-it", f"series {series.pk} has no patch")
    state = _CHECK_STATES[Finding.Kind(finding.kind)]
    said = finding.headline
    if finding.state in _OVER:
        state, said = "pending", f"withdrawn: {finding.reason or Finding.State(finding.state).label}"
    elif finding.state == Finding.State.ACCEPTED:
        state, said = "warning", f"accepted: {finding.headline}"
    check = {
        "state": state,
        "target_url": page_of(finding),
        "context": _CHECK_CONTEXT,
        "description": _line(said)[:_LONGEST_DESCRIPTION],
    }
    return {"message_id": last.message.message_id, "check": check}


def kcidb_report(finding: Finding) -> dict[str, Any]:
    """Checkout, builds and one test for each cell, after KCIDB's schema 5.3.

    DomainError `not-for-it` for a virtual finding, or one without a result.
    """
    _refuse_untold(finding)
    cells = cells_of(finding)
    if cells is None:
        raise DomainError("not-for-it", f"finding {finding.pk} has no result")
    # Those that a check silenced too: what was told of them must be put right there.
    rows = heard(cells, finding.checks)
    is_over = finding.state in _OVER
    sessions = {row.session_id: row.session for row in rows}
    ids = [session.patched_build_id for session in sessions.values()]
    builds = {
        session.patched_build_id: session
        for session in Session.objects.filter(patched_build__in=ids).select_related(
            "patched_build__config", "patched_build__toolchain"
        )
    }
    return {
        "version": _KCIDB_VERSION,
        "checkouts": [_checkout(finding)],
        "builds": [_build(finding, session) for _, session in sorted(builds.items())],
        "tests": [_test(row, is_over=is_over) for row in rows],
    }


def regzbot_lines(finding: Finding) -> str:
    """Commands for the kernel's regression tracker, to be put into a mail about it by a person.

    DomainError `not-for-it` where nothing regressed, or the commit that made it is not known.
    """
    _refuse_untold(finding)
    if finding.kind not in (Finding.Kind.REGRESSED, Finding.Kind.SPLIT) or finding.state in _OVER:
        raise DomainError("not-for-it", f"finding {finding.pk} is no regression that stands")
    if finding.series_id is not None:
        raise DomainError("not-for-it", "a series that is not merged is no regression of a tree")
    if finding.culprit is not None:
        introduced = finding.culprit.sha[:12]
    elif finding.before is not None and finding.after is not None:
        introduced = f"{finding.before.sha[:12]}..{finding.after.sha[:12]}"
    else:
        raise DomainError("not-for-it", f"where finding {finding.pk} came in is not known")
    lines = [
        f"#regzbot introduced: {introduced}",
        f"#regzbot title: {_line(finding.headline)[:120]}",
        f"#regzbot link: {page_of(finding)}",
    ]
    if finding.state == Finding.State.FIXED and finding.fix is not None:
        lines.append(f"#regzbot fix: {finding.fix.sha[:12]}")
    return "\n".join(lines) + "\n"


def trailers(finding: Finding) -> str:
    """What `b4 trailers` and a maintainer can take over. `Tested-by` where nothing regressed; else who reported it.

    DomainError `not-for-it` where a trailer would claim what was not seen.
    """
    series = _series_of(finding)
    if finding.state in _OVER or finding.kind == Finding.Kind.INCONCLUSIVE:
        raise DomainError("not-for-it", f"finding {finding.pk} claims nothing that a trailer could say")
    sender = _line(settings.MAIL_FROM)
    if finding.kind in (Finding.Kind.REGRESSED, Finding.Kind.SPLIT):
        return f"Reported-by: {sender}\nCloses: {settings.SITE_URL}/series/{series.pk}/\n"
    told = "; ".join(_component(row) for row in finding.verdicts.select_related("uarch", "comparison__metric"))
    return f"Tested-by: {sender} # {told}\n"


# Those that the site may be connected with.
PORTS = {"patchwork": patchwork_check, "kcidb": kcidb_report}


def page_of(finding: Finding) -> str:
    place = f"series/{finding.series_id}" if finding.series_id is not None else f"findings/{finding.pk}"
    return f"{settings.SITE_URL}/{place}/"


def _series_of(finding: Finding) -> Series:
    _refuse_untold(finding)
    if finding.series is None:
        raise DomainError("not-for-it", f"finding {finding.pk} is of a branch, not of a series")
    return finding.series


def _refuse_untold(finding: Finding) -> None:
    if finding.canary:
        raise DomainError("not-for-it", f"finding {finding.pk} is of a canary, which is nobody else's")
    if is_virtual(finding):
        raise DomainError("not-for-it", f"finding {finding.pk} is of virtual machines: no evidence")


def _component(row: FindingVerdict) -> str:
    if row.verdict == Verdict.UNCHANGED:
        seen = f" (would have seen {seen_effect(row.mde)})" if row.mde is not None else ""
        return f"{row.uarch.name}: no change{seen}"
    most = row.comparison
    if row.verdict == Verdict.IMPROVED and most is not None and most.ratio is not None:
        return f"{row.uarch.name}: up to {as_speed(most.ratio, most.metric.better)}"
    return f"{row.uarch.name}: not told"


def _checkout(finding: Finding) -> dict[str, Any]:
    series = finding.series
    made = {"id": _id(f"finding-{finding.pk}"), "origin": settings.KCIDB_ORIGIN, "valid": True}
    if series is None:
        assert finding.after is not None
        assert finding.branch is not None
        tree = finding.branch.tree
        made |= {
            "git_commit_hash": finding.after.sha,
            "git_repository_branch": finding.branch.name,
            "patchset_hash": "",
        }
    else:
        assert series.base is not None
        tree = series.base.tree
        patches = list(series.patches.order_by("index").select_related("message"))
        made |= {
            "git_commit_hash": series.base.sha,
            "patchset_hash": _patchset_hash(patches),
            "patchset_files": [_file(patch) for patch in patches],
            "message_id": series.first_message_id,
            "comment": _line(series.subject),
        }
    made["tree_name"] = tree.name
    if tree.url.startswith("https://"):
        made["git_repository_url"] = tree.url
    return made


def _patchset_hash(patches: Sequence[Patch]) -> str:
    """As the schema asks: of the hashes of all patch files, a line each."""
    lines = "".join(f"{hashlib.sha256(bytes(patch.message.raw)).hexdigest()}\n" for patch in patches)
    return hashlib.sha256(lines.encode()).hexdigest()


def _file(patch: Patch) -> dict[str, str]:
    return {"name": f"{patch.index:04}.patch", "url": f"{settings.SITE_URL}/messages/{patch.message_id}/raw/"}


def _build(finding: Finding, session: Session) -> dict[str, Any]:
    build = session.patched_build
    return {
        "id": _id(f"build-{build.pk}"),
        "checkout_id": _id(f"finding-{finding.pk}"),
        "origin": settings.KCIDB_ORIGIN,
        "architecture": build.arch,
        "compiler": _line(build.compiler_version or build.toolchain.compiler),
        "config_name": _line(build.config.name),
        "status": "PASS",
        "misc": {"page": f"{settings.SITE_URL}/builds/{build.pk}/"},
    }


def _test(row: Comparison, *, is_over: bool) -> dict[str, Any]:
    machine = row.session.machine
    parts = [_CHECK_CONTEXT, row.case.benchmark.name, row.case.name, row.metric.name]
    told = {
        "id": _id(f"comparison-{row.pk}"),
        "build_id": _id(f"build-{row.session.patched_build_id}"),
        "origin": settings.KCIDB_ORIGIN,
        "path": ".".join(_NOT_IN_PATH.sub("_", part) for part in parts),
        "environment": {"comment": _line(f"{machine.name} ({machine.uarch.name})")},
        "status": "DONE" if is_over else _TEST_STATUS.get(Verdict(row.verdict), "DONE"),
        "misc": {
            name: value
            for name in (
                "verdict",
                "ratio",
                "ratio_low",
                "ratio_high",
                "base_mean",
                "base_boots",
                "patched_boots",
                "mde",
            )
            if (value := getattr(row, name)) is not None
        },
    }
    if row.patched_mean is not None:
        told["number"] = {"value": row.patched_mean, "unit": _line(row.metric.unit) or "1"}
    if row.ratio is not None:
        told["comment"] = ("withdrawn: " if is_over else "") + as_speed(row.ratio, row.metric.better)
    return told


def _id(name: str) -> str:
    return f"{settings.KCIDB_ORIGIN}:{name}"


def _line(text: str) -> str:
    return _NOT_PRINTED.sub(" ", text).strip()
