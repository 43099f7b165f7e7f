"""Patch ids: what a patch changes, whatever its line numbers, as `git patch-id --stable` counts it."""

import secrets
from collections.abc import Collection, Sequence
from datetime import timedelta
from pathlib import Path

from server.core import clock
from server.core.git import GitError, run, run_program
from server.core.sandbox import Room
from server.sources.bases.blobs import MOST_PATHS
from server.sources.mail.diffs import git_form
from server.sources.mail.parser import parse_mail
from server.sources.mirror import mirror
from server.sources.models import Patch, Series

# Prerequisites are posted shortly before what needs them.
_LOOK_BACK = timedelta(days=120)
_MOST_PATCHES = 3000
_AT_ONCE = 200
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
    """Give the newest patches of complete series their ids, as far as they have none; returns how many were found."""
    complete = Patch.objects.filter(patch_id="", series__received_at__gt=clock.now() - _LOOK_BACK)
    complete = complete.exclude(series__state=Series.State.INCOMPLETE).select_related("message").order_by("-pk")
    keys = list(complete.values_list("pk", flat=True)[:_MOST_PATCHES])
    return sum(_fill(keys[n : n + _AT_ONCE], folder) for n in range(0, len(keys), _AT_ONCE))


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
