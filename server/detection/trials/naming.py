"""Which kernels a reader means by a word: a commit, or one build."""

import re
from collections.abc import Sequence
from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db import DEFAULT_DB_ALIAS
from django.db.models import OuterRef, QuerySet

from server.builds.models import Build
from server.core.errors import DomainError
from server.core.rows.together import Row
from server.sources.models import Revision, Tree

SHA = re.compile(r"[0-9a-f]{7,40}")
HOW = "A commit, in full or its first digits (7 or more), or build:ID."
_LONGEST_ID = 9
_SHOWN = 40


_FEW = 3
_OF_REVISION = [field.attname for field in Revision._meta.concrete_fields]
_OF_TREE = ["id", "name"]


def revisions_named(word: str) -> QuerySet[Revision]:
    """The few that the word may mean."""
    rows = Revision.objects.order_by("sha")
    number = _build_of(word)
    if number is not None:
        return rows.filter(builds=number)
    return rows.filter(sha__startswith=word)[:_FEW] if SHA.fullmatch(word) else rows.none()


def asked_of(word: str) -> "QuerySet[Any, Any]":
    """The question that `kernel_of` reads the answer of, to be asked together with others.

    Kernels are made once for equal content, under whichever commit came first.
    """
    same = Build.objects.filter(revision__tree_sha=OuterRef("tree_sha")).order_by("pk").values("pk")
    of_tree = (f"tree__{name}" for name in _OF_TREE)
    return revisions_named(word).values_list(*_OF_REVISION, *of_tree, ArraySubquery(same))


def kernel_of(word: str, rows: Sequence[Row]) -> tuple[Revision, set[int]]:
    """The revision, with its tree, and its builds; raises DomainError `unknown-kernel`."""
    kind, _, number = word.partition(":")
    is_build = kind == "build" and ":" in word
    if is_build and not rows:
        raise _unknown(f"There is no build {number[:_SHOWN]}.")
    if not is_build and not SHA.fullmatch(word):
        raise _unknown(HOW)
    if len(rows) != 1:
        several = f"{word} begins several commits: {', '.join(map(_sha, rows))}."
        raise _unknown(several if rows else f"There is no commit {word} here.")
    *told, builds = rows[0]
    revision = Revision.from_db(DEFAULT_DB_ALIAS, _OF_REVISION, told[: len(_OF_REVISION)])
    revision.tree = Tree.from_db(DEFAULT_DB_ALIAS, _OF_TREE, told[len(_OF_REVISION) :])
    return revision, {int(number)} if is_build else set(builds)


def _sha(row: Row) -> str:
    return str(row[_OF_REVISION.index("sha")])


def _build_of(word: str) -> int | None:
    kind, mark, number = word.partition(":")
    known = mark and kind == "build" and number.isascii() and number.isdecimal() and len(number) <= _LONGEST_ID
    return int(number) if known else None


def _unknown(message: str) -> DomainError:
    return DomainError("unknown-kernel", message)
