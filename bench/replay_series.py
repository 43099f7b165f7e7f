"""Series of the replay: real commits in the mirror, and the rows that mails would have made of them."""

from bench.replay_commits import commit, git
from bench.replay_fleet import list_of, tree_of
from bench.replay_rows import Study
from server.core import clock
from server.core.tasks import enqueue
from server.sources.mirror import base_ref, record_revisions, series_ref, tree_ref
from server.sources.models import Branch, Message, Patch, Revision, Series


def base_of(study: Study) -> Revision:
    """The head of the study's tree, to which its series are applied."""
    tree = tree_of(study)
    branch = Branch.objects.filter(tree=tree, name="master").select_related("head").first()
    if branch is not None and branch.head is not None:
        return branch.head
    sha = commit(study, [], "Linux 6.18")
    git("update-ref", tree_ref(tree, "master"), sha)
    head = record_revisions(tree=tree, shas=[sha])[0]
    Branch.objects.update_or_create(tree=tree, name="master", defaults={"head": head, "head_at": clock.now()})
    return head


def post_series(study: Study, number: int) -> Series:
    """One posting of the study's series, applied; each number is a posting of its own with commits of its own."""
    base, mailing_list = base_of(study), list_of(study)
    shas, parent = [], base.sha
    for index, subject in enumerate(study.patches, start=1):
        parent = commit(study, range(1, index + 1), f"{subject}\n\nPosting {number}.", parent)
        shas.append(parent)
    revisions = record_revisions(tree=base.tree, shas=shas)
    root = f"{study.name}-{number}@example.org"
    series = Series.objects.create(
        mailing_list=mailing_list,
        root_message_id=root,
        subject=study.title,
        author_name="Ada Author",
        author_address=f"ada-{number}@example.org",
        total=len(study.patches),
        submitted_at=clock.now(),
        base=base,
        head=revisions[-1],
        benchmarks=study.benchmarks,
        state=Series.State.APPLIED,
    ).record_creation()
    git("update-ref", base_ref(series.pk), base.sha)
    for index, (subject, revision) in enumerate(zip(study.patches, revisions, strict=True), start=1):
        git("update-ref", series_ref(series.pk, index), revision.sha)
        message = _message(series, f"{index}-{root}", subject)
        Patch.objects.create(series=series, index=index, message=message, subject=subject, revision=revision)
    # As whoever applies a series does.
    enqueue("builds.sweep")
    return series


def _message(series: Series, message_id: str, subject: str) -> Message:
    raw = f"From: Ada Author <{series.author_address}>\nMessage-ID: <{message_id}>\n\nbody\n"
    return Message.objects.create(
        mailing_list=series.mailing_list,
        message_id=message_id,
        blob=git("hash-object", "--stdin", stdin=raw),
        subject=f"[PATCH] {subject}",
        sender_name=series.author_name,
        sender_address=series.author_address,
        sent_at=series.submitted_at,
        kind=Message.Kind.PATCH,
        raw=raw.encode(),
    )
