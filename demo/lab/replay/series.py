"""The fleet of a replay as rows, and its series: real commits, and the rows that mails would have made."""

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from demo.lab.replay.machines import BY_UARCH, Model
from demo.lab.replay.studies import PATCH, STUDY, Kernel, Row, Study, kernel_of
from server.builds.models import KernelConfig, Toolchain
from server.core import clock
from server.core.access.tokens import issue_token
from server.core.models import ApiToken
from server.core.tasks import enqueue
from server.lab.models import CoreType, Machine, Microarchitecture
from server.lab.work import local_builder
from server.results.models import Benchmark, Case, Metric
from server.sources.mirror import base_ref, mirror, record_revisions, series_ref, tree_ref
from server.sources.models import Branch, MailingList, Message, Patch, Revision, Series, Tree

# As the published practice: 7 boots a side, in each of them 3 runs that count after one that does not.
BOOTS_PER_SIDE, RUNS, WARMUP = 7, 4, 1
_VERSION = "1"


def enlist(studies: Iterable[Study], fleet: Mapping[str, int] | None = None) -> dict[str, str]:
    """Make the rows of what these studies need; returns the tokens of machines and of the builder, by their names.

    `fleet` tells how many machines of a microarchitecture there are, where it is not one.
    """
    studies = list(studies)
    for row in (row for study in studies for row in study.rows):
        _case(row)
    for study in studies:
        for name, words in study.words.items():
            Benchmark.objects.filter(name=name).update(words=words)
    builder = local_builder()
    tokens = {builder.name: issue_token(name=builder.name, scope=ApiToken.Scope.BUILDER, subject=builder.name)}
    for uarch in sorted({uarch for study in studies for uarch in study.uarchs}):
        rows = [row for study in studies for row in study.rows if row.uarch == uarch]
        for number in range(1, 1 + (fleet or {}).get(uarch, 1)):
            machine = _machine(BY_UARCH[uarch], number, rows)
            tokens[machine.name] = issue_token(name=machine.name, scope=ApiToken.Scope.MACHINE, subject=machine.name)
    return tokens


def _case(row: Row) -> None:
    benchmark = Benchmark.objects.get_or_create(
        name=row.benchmark, defaults={"title": row.benchmark, "version": _VERSION}
    )[0]
    numbers = {"title": row.case, "runs": RUNS, "warmup": WARMUP, "parameters": dict(row.parameters)}
    Case.objects.get_or_create(benchmark=benchmark, name=row.case, defaults=numbers)
    # Counters come with the conditions of each boot.
    if not row.is_counter:
        told = {"title": row.metric, "unit": row.unit, "better": row.better}
        Metric.objects.get_or_create(benchmark=benchmark, name=row.metric, defaults=told)


def _machine(model: Model, number: int, rows: Iterable[Row]) -> Machine:
    uarch = Microarchitecture.objects.get_or_create(
        name=model.uarch, defaults={"arch": model.arch, "title": model.model_name}
    )[0]
    config = KernelConfig.objects.get_or_create(name=f"replay-{model.arch}", defaults={"arch": model.arch})[0]
    toolchain = Toolchain.objects.get_or_create(name="gcc", defaults={"compiler": "gcc"})[0]
    machine = Machine.objects.create(
        name=f"{model.uarch}-{number}",
        uarch=uarch,
        virtual=model.virtual,
        boot_driver="qemu" if model.virtual else "kexec",
        config=config,
        toolchain=toolchain,
        boots_per_side=BOOTS_PER_SIDE,
        cases=sorted({f"{row.benchmark}/{row.case}" for row in rows}),
    )
    CoreType.objects.bulk_create(CoreType(machine=machine, name=name, cpus="") for name in model.core_types)
    return machine


def tree_of(study: Study) -> Tree:
    """A tree that is interested in the study's machines alone, and whose heads nobody measures."""
    fields = {"url": "file:///nowhere.git", "uarchs": study.uarchs, "heads_per_day": 0}
    return Tree.objects.get_or_create(name=study.name, defaults=fields)[0]


def list_of(study: Study) -> MailingList:
    fields = {"url": "file:///nowhere", "address": f"{study.name}@example.org", "tree": tree_of(study)}
    return MailingList.objects.get_or_create(name=study.name, defaults=fields)[0]


_WHO = {"GIT_AUTHOR_NAME": "Ada Author", "GIT_AUTHOR_EMAIL": "ada@example.org"}
_WHEN = "1793534400 +0000"


def git(*arguments: str, stdin: str = "") -> str:
    """Git in the mirror, for making what a real site fetches and applies."""
    committer = {name.replace("AUTHOR", "COMMITTER"): value for name, value in _WHO.items()}
    when = {"GIT_AUTHOR_DATE": _WHEN, "GIT_COMMITTER_DATE": _WHEN}
    done = subprocess.run(
        ["git", *arguments],
        cwd=mirror().git_dir,
        input=stdin,
        env={**os.environ, **_WHO, **committer, **when},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def commit(study: Study, patches: Sequence[int], message: str, parent: str = "") -> str:
    """A commit whose files name the study and the patches that it holds."""
    empty = git("hash-object", "-w", "--stdin")
    names = [f"{STUDY}{study.name}", *(f"{PATCH}{index:02}" for index in patches)]
    tree = git("mktree", stdin="".join(f"100644 blob {empty}\t{name}\n" for name in sorted(names)))
    return git("commit-tree", tree, *(("-p", parent) if parent else ()), "-m", message)


def held_by(build: Mapping[str, Any]) -> Kernel:
    """What the commit of a build's order holds."""
    return kernel_of(git("ls-tree", "--name-only", build["commit"]).splitlines())


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
        total=max(len(study.patches), announced(study.title)),
        submitted_at=clock.now(),
        base=base,
        head=revisions[-1],
        benchmarks=study.benchmarks,
        state=Series.State.APPLIED,
    ).record_creation()
    git("update-ref", base_ref(series.pk), base.sha)
    covered = _COVER.match(study.title) is not None
    if covered:
        Series.objects.filter(pk=series.pk).update(cover=_message(series, root, study.title, Message.Kind.COVER))
    for index, (subject, revision) in enumerate(zip(study.patches, revisions, strict=True), start=1):
        git("update-ref", series_ref(series.pk, index), revision.sha)
        message_id = root if index == 1 and not covered else f"{index}-{root}"
        message = _message(series, message_id, _subject(study, index, subject), Message.Kind.PATCH)
        Patch.objects.create(series=series, index=index, message=message, subject=subject, revision=revision)
    # As whoever applies a series does.
    enqueue("builds.sweep")
    return series


_MARK = re.compile(r"\[[^]]*\d+/(\d+)\]")


def announced(title: str) -> int:
    """How many patches the mark of a published mail tells of; the study may have measured fewer."""
    found = _MARK.match(title)
    return int(found[1]) if found else 0


_COVER = re.compile(r"(\[[^]]*\b)0+(/\d+\])\s*")


def _subject(study: Study, index: int, subject: str) -> str:
    """As the thread had it: a cover's mark tells those of its patches, and a patch that was published has its own."""
    cover = _COVER.match(study.title)
    if cover is not None:
        return f"{cover[1]}{index}{cover[2]} {_COVER.sub('', subject, count=1)}"
    return subject if subject.startswith("[") else f"[PATCH] {subject}"


def _message(series: Series, message_id: str, subject: str, kind: str) -> Message:
    raw = f"From: Ada Author <{series.author_address}>\nMessage-ID: <{message_id}>\n\nbody\n"
    return Message.objects.create(
        mailing_list=series.mailing_list,
        message_id=message_id,
        blob=git("hash-object", "--stdin", stdin=raw),
        subject=subject,
        sender_name=series.author_name,
        sender_address=series.author_address,
        sent_at=series.submitted_at,
        kind=kind,
        raw=raw.encode(),
    )
