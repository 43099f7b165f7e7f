"""Subscriptions: asked for by somebody who is signed in, ended by him, and matched with what a finding says."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q, QuerySet

from server.core import clock
from server.core.addresses import check_address
from server.core.errors import DomainError
from server.detection.findings.filters import ClaimFilter, claiming_anywhere, of_path, of_tree
from server.detection.models import Finding, Verdict
from server.lab.models import Microarchitecture
from server.reports.models import Subscription
from server.results.models import Benchmark
from server.sources.models import Tree

MOST_OF_ONE = 50
_LONGEST_URL = 500
# As the common libraries for webhooks take a secret.
_MARK = "whsec_"
# What is empty narrows nothing.
NARROWED = {"tree": Tree, "uarch": Microarchitecture, "benchmark": Benchmark}


def subscribe(user: User, wanted: Mapping[str, str]) -> tuple[Subscription, bool]:
    """A new subscription, or the one that says the same already; and whether it is new.

    `wanted` has texts: way, pace, url, claim, path, and the names of a tree, a uarch and a benchmark; what is missing
    is empty. DomainError `bad-subscription`, which names the field, `no-address`, or `too-many`.
    """
    fields = _asked(user, wanted)
    with transaction.atomic():
        active = _held_of(user)
        if known := active.filter(**fields).first():
            return known, False
        if active.count() >= MOST_OF_ONE:
            raise DomainError("too-many", f"{user.get_username()} has {MOST_OF_ONE} subscriptions: end one first")
        salt = secrets.token_hex(16) if fields["way"] == Subscription.Way.HOOK else ""
        return Subscription.objects.create(user=user, salt=salt, **fields), True


def _held_of(user: User) -> QuerySet[Subscription]:
    """Those of this person that have not ended: nobody else adds or changes one before the transaction ends."""
    User.objects.select_for_update(no_key=True).get(pk=user.pk)
    return Subscription.objects.filter(user=user, ended_at=None)


def change_subscription(subscription: Subscription, wanted: Mapping[str, str]) -> Subscription:
    """The same subscription, from now on of what `wanted` says; how it is told, by mail or by call, stays.

    What is missing is empty, as in `subscribe`. DomainError as there, and `conflict` where it has ended, or another one
    of the same person says the same.
    """
    if subscription.ended_at is not None:
        raise DomainError("conflict", "it has ended: make a new one")
    fields = _asked(subscription.user, {**wanted, "way": subscription.way})
    with transaction.atomic():
        others = _held_of(subscription.user).exclude(pk=subscription.pk)
        if others.filter(**fields).exists():
            raise DomainError("conflict", "another subscription of yours says the same")
        for name, value in fields.items():
            setattr(subscription, name, value)
        subscription.save(update_fields=list(fields))
    return subscription


def renew_secret(subscription: Subscription) -> str:
    """Another secret for the calls of a webhook, from the next call on. DomainError `conflict` where there is none."""
    if subscription.way != Subscription.Way.HOOK or subscription.ended_at is not None:
        raise DomainError("conflict", "only a webhook that is called has a secret")
    subscription.salt = secrets.token_hex(16)
    subscription.save(update_fields=["salt"])
    return hook_secret(subscription)


def _asked(user: User, wanted: Mapping[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {name: _named(model, name, wanted.get(name, "")) for name, model in NARROWED.items()}
    fields["claim"] = _choice(Subscription.Claim, "claim", wanted.get("claim", ""), empty=True)
    fields["way"] = _choice(Subscription.Way, "way", wanted.get("way", "") or Subscription.Way.MAIL)
    fields["pace"] = _choice(Subscription.Pace, "pace", wanted.get("pace", "") or Subscription.Pace.EACH)
    fields["path"] = _path(wanted.get("path", ""))
    fields["url"] = _url(fields["way"], wanted.get("url", ""))
    _refuse(user, fields)
    return fields


def end_subscription(subscription: Subscription) -> bool:
    """Nothing is told any more; what waits to be told is not. False where it had ended."""
    return bool(Subscription.objects.filter(pk=subscription.pk, ended_at=None).update(ended_at=clock.now()))


def hook_secret(subscription: Subscription) -> str:
    """What signs the calls of a webhook, as its owner gives it to the receiver: stored nowhere, shown once."""
    return _MARK + base64.b64encode(hook_key(subscription)).decode()


def hook_key(subscription: Subscription) -> bytes:
    told = f"webhook/{subscription.pk}/{subscription.salt}".encode()
    return hmac.digest(settings.SECRET_KEY.encode(), told, hashlib.sha256)


def active_subscriptions() -> QuerySet[Subscription]:
    """Of people who may still sign in."""
    rows = Subscription.objects.filter(ended_at=None, user__is_active=True)
    return rows.select_related("user", "tree", "uarch", "benchmark")


def matches(subscription: Subscription, finding: Finding) -> bool:
    """Whether the finding says what the subscriber asked to be told of. One query, as lists of findings ask it."""
    return matching(subscription, Finding.objects.filter(pk=finding.pk)).exists()


def matching(subscription: Subscription, findings: QuerySet[Finding]) -> QuerySet[Finding]:
    """Those of `findings` that claim a change as the subscription wants it."""
    findings = findings.filter(kind__in=(Finding.Kind.REGRESSED, Finding.Kind.IMPROVED, Finding.Kind.SPLIT))
    if subscription.tree_id is not None:
        findings = of_tree(findings, [subscription.tree_id])
    if subscription.path:
        findings = of_path(findings, subscription.path)
    cells = [Q(case__benchmark=subscription.benchmark_id)] if subscription.benchmark_id is not None else []
    if subscription.uarch_id is None:
        if subscription.claim:
            findings = claiming_anywhere(findings, Verdict(subscription.claim))
        return ClaimFilter(of_cell=cells).of(findings)
    regressed = ClaimFilter(regressed_on=[subscription.uarch_id], of_cell=cells)
    improved = ClaimFilter(improved_on=[subscription.uarch_id], of_cell=cells)
    if subscription.claim:
        wanted = regressed if subscription.claim == Subscription.Claim.REGRESSED else improved
        return wanted.of(findings)
    # Each alone: two conditions in one query would be asked of the same cell.
    either = [wanted.of(findings).order_by().values("pk") for wanted in (regressed, improved)]
    return findings.filter(Q(pk__in=either[0]) | Q(pk__in=either[1]))


def wish(subscription: Subscription) -> str:
    """What it asks for, for people: `what regressed on zen3 in tree mm, benchmark folio_copy, files mm/`."""
    claim = f"what {subscription.claim}" if subscription.claim else "what changed"
    parts = [
        f"on {subscription.uarch.name}" if subscription.uarch else "",
        f"in tree {subscription.tree.name}" if subscription.tree else "",
        f"in benchmark {subscription.benchmark.name}" if subscription.benchmark else "",
        f"by series that touch {subscription.path}" if subscription.path else "",
    ]
    return " ".join([claim, *filter(None, parts)])


def _named(model: Any, field: str, name: str) -> Any:
    if not name.strip():
        return None
    found = model.objects.filter(name=name.strip()).first()
    if found is None:
        known = ", ".join(model.objects.order_by("name").values_list("name", flat=True)[:20]) or "none yet"
        raise DomainError("bad-subscription", f"{field}: there is no {name.strip()[:60]}; known: {known}")
    return found


def _choice(choices: Any, field: str, value: str, *, empty: bool = False) -> str:
    if value in choices.values or (empty and not value):
        return value
    raise DomainError("bad-subscription", f"{field}: there is no {value[:60]}; known: {', '.join(choices.values)}")


def _path(path: str) -> str:
    if len(path) > 200 or not path.isprintable():  # noqa: PLR2004 (the column's)
        raise DomainError("bad-subscription", "path: the beginning of a path, at most 200 characters")
    return path.strip()


def _url(way: str, url: str) -> str:
    if way != Subscription.Way.HOOK:
        if url:
            raise DomainError("bad-subscription", "url: only a webhook has one")
        return ""
    try:
        check_address(url)
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable() and " " not in url
        _ = parts.port
    except ValidationError as error:
        raise DomainError("bad-subscription", f"url: {error.messages[0]}") from error
    except ValueError as error:
        raise DomainError("bad-subscription", "url: not an address") from error
    if not good or len(url) > _LONGEST_URL:
        raise DomainError("bad-subscription", "url: an address that begins with https:// (or http://)")
    return url


def _refuse(user: User, fields: Mapping[str, Any]) -> None:
    if fields["way"] == Subscription.Way.MAIL and not user.email:
        raise DomainError("no-address", f"{user.get_username()} has no mail address here: an administrator adds it")
    if fields["pace"] != Subscription.Pace.WEEKLY:
        return
    if fields["way"] != Subscription.Way.MAIL or fields["tree"] is None:
        raise DomainError("bad-subscription", "pace: a weekly digest is a mail about one tree: name it")
    if any(fields[name] for name in ("uarch", "benchmark", "claim", "path")):
        raise DomainError("bad-subscription", "pace: a weekly digest tells all of its tree: only the tree narrows it")
