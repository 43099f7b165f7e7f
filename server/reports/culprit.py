"""The commit that made a change in a branch, as a mail about it needs it: who wrote it, whose the files are that it
touches, and on which thread it was posted.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from server.core.errors import DomainError
from server.core.programs.git import Repository
from server.detection.models import Finding
from server.sources.mirror import mirror
from server.sources.models import Message, Patch
from server.sources.trust.senders import Section, maintainers_at

# A commit that touches more of them has half of all maintainers for readers.
_MOST_PATHS = 100
_SECONDS = 60.0
_ARCHIVES = r"(?:lore\.kernel\.org|lkml\.kernel\.org|patch\.msgid\.link)"
_LINK = re.compile(rf"^Link:\s*https?://{_ARCHIVES}/(?:[^/\s]+/)?([^/\s]+@[^/\s]+?)/?\s*$", re.IGNORECASE)
# The address below these is of the report, not of the patch.
_OF_REPORT = re.compile(r"^(reported-by|reported-and-tested-by|closes):", re.IGNORECASE)
# Everybody's files; its maintainer is spared the mails about all of them, as get_maintainer.pl does.
_REST = "THE REST"
MESSAGE_ID = re.compile(r"[!-;=?-~]{1,400}")


@dataclass(frozen=True)
class CulpritCommit:
    """Addresses of its author and committer, its message, and the files that it touches; none are known of a merge."""

    sha: str
    author: str
    committer: str
    message: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class PostedAs:
    """Where a mail about a commit belongs: a Message-ID and what it refers to itself. Empty: in a thread of its own."""

    message_id: str = ""
    references: tuple[str, ...] = ()


def read_commit(sha: str) -> CulpritCommit:
    """GitError, temporary, where the mirror cannot be read; DomainError `incomplete-report` where it has none."""
    repository = mirror()
    if repository.resolve(sha) is None:
        raise DomainError("incomplete-report", f"the mirror does not hold {sha[:12]}, which made the change")
    told = repository.output("show", "-s", "--no-notes", "--format=%ae%x00%ce%x00%P%x00%B", sha, timeout=_SECONDS)
    author, committer, parents, message = told.decode("utf-8", "replace").split("\0", 3)
    return CulpritCommit(sha, author, committer, message, () if len(parents.split()) > 1 else _paths(repository, sha))


def _paths(repository: Repository, sha: str) -> tuple[str, ...]:
    told = repository.output(
        "diff-tree", "-r", "-z", "--root", "--no-commit-id", "--name-only", "--no-renames", sha, timeout=_SECONDS
    )
    return tuple(path for path in told.decode("utf-8", "replace").split("\0") if path)


def concerned(commit: CulpritCommit, finding: Finding) -> list[str]:
    """Lists, then maintainers, then reviewers that MAINTAINERS of the finding's branch names for the commit's files.

    Of the sections that speak about most of the files first. Nobody for a commit that touches very many of them.
    """
    if not 0 < len(commit.paths) <= _MOST_PATHS:
        return []
    repository = mirror()
    head = finding.branch.head.sha if finding.branch and finding.branch.head else ""
    # People change: the newest file knows them best.
    at = repository.resolve(head) if head else None
    sections = _speaking(maintainers_at(repository, at or commit.sha), commit.paths)
    lists = [address for section in sections for address in section.lists]
    people = [section for section in sections if section.title != _REST]
    maintainers = [address for section in people for address in section.maintainers]
    reviewers = [address for section in people for address in section.reviewers]
    return list(dict.fromkeys([*lists, *maintainers, *reviewers]))


def _speaking(sections: Iterable[Section], paths: tuple[str, ...]) -> list[Section]:
    counted = [(sum(section.covers(path) for path in paths), section) for section in sections]
    speaking = [(count, section) for count, section in counted if count]
    # Everybody's section covers all files and knows none of them.
    speaking.sort(key=lambda pair: (pair[1].title == _REST, -pair[0]))
    return [section for _count, section in speaking]


def place_of(commit: CulpritCommit) -> PostedAs:
    """The mail by which the commit was posted, as its trailers or our own archive tell."""
    linked = _linked(commit.message)
    known = {row.message_id: row for row in Message.objects.filter(message_id__in=linked).defer(*_UNREAD)}
    for name in linked:
        if name in known and known[name].kind == Message.Kind.PATCH:
            return _place(known[name])
    if posted := _by_patch_id(commit):
        return _place(posted)
    # One that the archive knows as something else is no patch.
    return next((PostedAs(name, (name,)) for name in linked if name not in known), PostedAs())


_UNREAD = tuple(name for name in Message.LONG if name != "references")


def _linked(message: str) -> list[str]:
    """Message-IDs of Link trailers, the last first: who applies a patch adds the link to it at the end."""
    found, before = [], ""
    for line in message.splitlines():
        link = _LINK.match(line)
        if link and not _OF_REPORT.match(before) and MESSAGE_ID.fullmatch(name := unquote(link[1])):
            found.append(name)
        before = line
    return list(dict.fromkeys(reversed(found)))


def _by_patch_id(commit: CulpritCommit) -> Message | None:
    if not commit.paths:
        return None
    repository = mirror()
    diff = repository.output("diff-tree", "-p", "--root", "--no-commit-id", commit.sha, timeout=_SECONDS)
    told = repository.output("patch-id", "--stable", stdin=diff, timeout=_SECONDS).decode().split()
    if not told:
        return None
    patches = Patch.objects.filter(patch_id=told[0]).select_related("message").order_by("-series__submitted_at", "-pk")
    patch = patches.defer("trailers", *(f"message__{name}" for name in _UNREAD)).first()
    return patch.message if patch else None


def _place(message: Message) -> PostedAs:
    before = [name for name in message.references if MESSAGE_ID.fullmatch(name)]
    return PostedAs(message.message_id, tuple(dict.fromkeys([*before, message.message_id])))
