"""Patch ids: what a patch changes, whatever its line numbers, as `git patch-id --stable` counts it."""

import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import chain, islice
from pathlib import Path

from django.db.models import Exists, F, Func, IntegerField, OuterRef, Q

from server.core import clock
from server.core.git import GitError, run, run_program
from server.core.models import Transition
from server.core.sandbox import Room
from server.sources.applying.screening import MAX_BYTES
from server.sources.bases.blobs import MOST_PATHS
from server.sources.mail.diffs import git_form
from server.sources.mail.parser import parse_mail
from server.sources.mirror import mirror
from server.sources.models import Patch, Series

MAY_RUN = (Series.State.READY, Series.State.APPLIED)
# Prerequisites are posted shortly before what needs them.
_LOOK_BACK = timedelta(days=120)
_MOST_PATCHES = 3000
_AT_ONCE = 200
# Of mails as they were sent. Read, a letter may take twenty times its bytes.
_BYTES_AT_ONCE = 4 * 1024 * 1024
_SIZE = Func(F("message__raw"), function="octet_length", output_field=IntegerField())
# As long as a commit's id, which git takes the marks for.
_MARK_BYTES = 20
# Commits of a base among which a prerequisite may be already, and seconds to read them.
_RECENT_COMMITS = 500
_LOG_SECONDS = 30.0
# A log that ends early holds fewer ids than there are.
_LOG = (
    "set -o pipefail; "
    'git --git-dir=. --literal-pathspecs log -p --no-merges --no-ext-diff --full-diff -n "$1" "$2" -- "${@:3}" '
    "| git patch-id --stable"
)


def was_allowed(way: str = "") -> Q:
    """Whether a series may be applied below another one: it was proved or approved some time.

    `way` leads from the rows that are asked to the series, as "series__".
    """
    steps = Transition.objects.filter(
        subject=Series._meta.model_name, subject_id=OuterRef(f"{way}pk"), after__in=MAY_RUN
    )
    never = {f"{way}state__in": [Series.State.HELD, Series.State.INCOMPLETE]}
    return ~Q(**never) & (Q(**{f"{way}state__in": MAY_RUN}) | Q(Exists(steps)))


def patch_ids(texts: Sequence[str], *, folder: Path) -> list[str]:
    """The id of each text's diff, "" where it holds none. git runs in the sandbox, in `folder`."""
    # Marks that nobody can guess: a text may hold lines that look like the beginning of another commit.
    marks = [secrets.token_hex(_MARK_BYTES) for _text in texts]
    # Without the message: a line of it that looks like a commit's id would start another one.
    parts = [f"commit {mark}\n{git_form(text)}\n" for mark, text in zip(marks, texts, strict=True)]
    folder.mkdir(parents=True, exist_ok=True)
    stdin = "".join(parts).encode("utf-8", "surrogateescape")
    done = run("patch-id", "--stable", cwd=folder, stdin=stdin, room=Room(writable=folder))
    if done.code != 0:
        raise GitError("git-failed", f"git patch-id: {done.stderr.strip()[:300]}")
    found = {mark: patch_id for patch_id, mark in map(str.split, done.stdout.decode().splitlines())}
    return [found.get(mark, "") for mark in marks]


def fill_patch_ids(*, folder: Path) -> int:
    """Give the newest patches of complete series their ids, as far as they have none; returns how many were found.

    First those of series that may be applied below others. What waits for a person can only be named in a reason: of
    that a few are read, for anybody can post any number of large ones.
    """
    complete = Patch.objects.filter(patch_id="", series__received_at__gt=clock.now() - _LOOK_BACK)
    complete = complete.exclude(series__state=Series.State.INCOMPLETE).annotate(size=_SIZE)
    newest = complete.filter(size__lte=MAX_BYTES).order_by("-pk").values_list("pk", "size")
    allowed = _parts(newest.filter(was_allowed("series__"))[:_MOST_PATCHES])
    waiting = _parts(newest.filter(series__state=Series.State.HELD)[:_AT_ONCE])
    return sum(_fill(keys, folder) for keys in chain(allowed, islice(waiting, 1)))


def _parts(sized: Iterable[tuple[int, int]]) -> Iterator[list[int]]:
    """The keys in parts that are read together."""
    part: list[int] = []
    left = _BYTES_AT_ONCE
    for key, size in sized:
        if part and (size > left or len(part) == _AT_ONCE):
            yield part
            part, left = [], _BYTES_AT_ONCE
        part.append(key)
        left -= size
    if part:
        yield part


def _fill(keys: list[int], folder: Path) -> int:
    patches = list(Patch.objects.filter(pk__in=keys).select_related("message"))
    mails = [parse_mail(bytes(p.message.raw), blob=p.message.blob, received_at=p.message.received_at) for p in patches]
    for patch, patch_id in zip(patches, patch_ids([m.body for m in mails], folder=folder), strict=True):
        patch.patch_id = patch_id
    named = [p for p in patches if p.patch_id]
    Patch.objects.bulk_update(named, ["patch_id"])
    return len(named)


def ids_in_history(base: str, paths: Collection[str]) -> frozenset[str]:
    """Patch ids of the recent commits below `base` that touch one of `paths` (any, if empty).

    What cannot be read in time counts as not there: the prerequisite is applied then, or waited for.
    """
    # More paths do not fit on a command line; then all recent commits are looked at.
    words = sorted(paths) if len(set(paths)) <= MOST_PATHS else []
    words = ["-c", _LOG, "log", str(_RECENT_COMMITS), base, *words]
    try:
        told = run_program("bash", *words, cwd=mirror().git_dir, timeout=_LOG_SECONDS)
    except GitError as error:
        if error.code != "git-timeout":
            raise
        return frozenset()
    if told.code != 0:
        raise GitError("git-failed", f"git log of {base[:12]}: {told.stderr.strip()[:300]}", stderr=told.stderr)
    return frozenset(line.split()[0] for line in told.stdout.decode().splitlines())
