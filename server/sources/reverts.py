"""Taking one commit back out of what came later, without a work tree.

git merges blobs that strangers wrote here, so it runs in the sandbox, in a throw-away repository that borrows the
mirror's objects; what it made comes out as a pack and is checked (server/sources/applying).
"""

from pathlib import Path

from server.core.git import Completed, GitError, Repository
from server.core.sandbox import Room
from server.sources.applying.check import clean_repository, linear_commits, make_repository
from server.sources.applying.git_am import Applied, borrowed_folders, keep_commits, scratch_folder
from server.sources.mirror import mirror, record_revisions, revert_ref
from server.sources.models import Revision

_WHO = ("Tidemark", "tidemark@localhost")
_SECONDS = 60.0
_CONFLICT = 1


def revert_commit(*, head: Revision, culprit: Revision) -> Revision | None:
    """The commit on top of `head` that takes `culprit`, one of its ancestors, back; None where that conflicts.

    The same call makes the same commit: names and dates do not depend on when it runs. GitError, temporary, when git
    fails or takes too long.
    """
    with scratch_folder(f"revert-{head.sha[:20]}-{culprit.sha[:20]}") as scratch:
        made = _make(scratch, head, culprit)
    if made is None:
        return None
    return record_revisions(tree=head.tree, shas=[made], foreign=_is_foreign(head, culprit))[0]


def _is_foreign(head: Revision, culprit: Revision) -> bool:
    """What holds code of a series stays code of its author, whom builders do not trust."""
    return head.foreign or culprit.foreign


def _make(scratch: Path, head: Revision, culprit: Revision) -> str | None:
    repository = _borrowing(scratch / "room")
    # git finds the merge base by itself: a commit on top of the culprit with the tree before it makes that the culprit.
    before = _commit(repository, f"{culprit.sha}^^{{tree}}", culprit, culprit)
    merged = repository.run("merge-tree", "--write-tree", "--no-messages", head.sha, before, timeout=_SECONDS)
    if merged.code == _CONFLICT:
        return None
    made = _commit(repository, _word(merged), head, culprit)
    asked = f"{made}\n^{head.sha}\n".encode()
    pack = repository.output("pack-objects", "-q", "--revs", "--thin", "--stdout", stdin=asked)
    clean = clean_repository(scratch / "clean", pack)
    commits = tuple(linear_commits(clean, head.sha, made))
    kept = Applied(base=head.sha, commits=commits, prerequisites=(), repository=clean)
    keep_commits(applied=kept, refs={revert_ref(made, foreign=_is_foreign(head, culprit)): made})
    return made


def _borrowing(room: Path) -> Repository:
    objects = mirror().git_dir / "objects"
    git_dir = make_repository(room / "git", head="ref: refs/heads/none", borrow=objects, config="\tbare = true\n")
    return Repository(git_dir, room=Room(writable=room, readable=borrowed_folders(objects)))


def _commit(repository: Repository, tree: str, parent: Revision, culprit: Revision) -> str:
    """A commit of `tree` on top of `parent`, dated as that."""
    date = f"@{int(parent.committed_at.timestamp())} +0000"
    who = {
        f"GIT_{role}_{field}": value
        for role in ("AUTHOR", "COMMITTER")
        for field, value in zip(("NAME", "EMAIL", "DATE"), (*_WHO, date), strict=True)
    }
    told = f'Revert "{culprit.subject}"\n\nThis reverts commit {culprit.sha}.\n'.encode("utf-8", "replace")
    sha = _word(repository.run("rev-parse", "--verify", "--end-of-options", tree))
    return _word(repository.run("commit-tree", "-p", parent.sha, sha, stdin=told, extra=who))


def _word(done: Completed) -> str:
    if done.code != 0:
        raise GitError("git-failed", f"git ended with {done.code}: {done.stderr.strip()[:300]}", stderr=done.stderr)
    return done.stdout.decode(errors="replace").split()[0]
