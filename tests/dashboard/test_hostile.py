"""Text of strangers is shown as text, wherever it stands."""

import re

import pytest
from django.db.models import CharField, Value
from django.db.models.functions import Cast, Concat
from pytest_django.fixtures import Settings

from server.builds.models import Artifact, Build, ConfigFragment, KernelConfig
from server.core import clock
from server.core.models import Transition
from server.dashboard.verdicts.finding_parts import FINDING_PARTS
from server.dashboard.verdicts.series_parts import PARTS
from server.detection.models import Finding, MachineQuestion, Timeline
from server.lab.dispatch.jenkins.models import JenkinsController, JenkinsJob, JenkinsNode, JenkinsRun
from server.lab.hosts.probes import keep_facts_of_machine
from server.lab.models import Attempt, Boot, Builder, Machine, PowerCycle, Session
from server.reports.models import Delivery, Report
from server.results.models import Metric
from server.sources.models import (
    Branch,
    HeadMove,
    MailingList,
    MeasureRule,
    Message,
    Patch,
    Revision,
    Series,
    Tag,
    Thread,
    Tree,
    WantedRevision,
)
from tests.builders import build_message, tell_boots
from tests.dashboard.conftest import Reader
from tests.found_scenarios import moved_timeline
from tests.lab_scenarios import CONTROLLER, busy_lab
from tests.scenarios import busy_site

pytestmark = pytest.mark.django_db

ATTACK = "<script>alert('{}')</script>\"onload=x</pre><!--"


def attack(name: str) -> str:
    return ATTACK.format(name)


def attack_mails() -> None:
    thread = Thread.objects.create()
    Message.objects.update(
        thread=thread,
        message_id=Concat(Value(attack("mail-id")), Cast("id", CharField())),
        subject=attack("mail-head"),
        sender_name=attack("sender"),
        sender_address=attack("sender-address"),
        authenticity=attack("proof"),
        in_reply_to=attack("parent"),
        raw=attack("raw").encode(),
    )
    build_message(thread=thread, kind=Message.Kind.UNUSABLE, reason=attack("mail-reason"), subject="")


def attack_tree(series: Series) -> None:
    assert series.base is not None
    tree = series.base.tree
    for kind in HeadMove.Kind.values:
        branch = Branch.objects.create(tree=tree, name=attack(f"branch-{kind}"), head=series.base)
        HeadMove.objects.create(branch=branch, kind=kind, after=series.base, decision=attack("decision"))
    WantedRevision.objects.create(tree=tree, revision=series.base, why="tag", detail=attack("why"))
    Tag.objects.create(tree=tree, name=attack("git-tag"), revision=series.base)
    MeasureRule.objects.create(pattern=attack("rule"), benchmarks=[attack("benchmark")], note=attack("rule-note"))
    Tree.objects.update(branch_patterns=[attack("pattern")], merges_by=[attack("merger")])


def attack_lab() -> None:
    """What controllers, nodes, agents and builders say."""
    for model in (Machine, Builder):
        model._default_manager.update(
            state_reason=attack("state-reason"),
            health_reason=attack("health"),
            capabilities=[attack("capability")],
        )
    Build.objects.update(first_error=attack("first-error"))
    Artifact.objects.update(removal=attack("removal"), removed_at=clock.now())
    ConfigFragment.objects.update(lines=attack("fragment-lines"))
    KernelConfig.objects.update(fragment=attack("own-lines"))
    Attempt.objects.update(
        reason=attack("attempt"), progress=attack("progress"), host=attack("agent-host"), log=attack("attempt-log")
    )
    JenkinsRun.objects.update(why=attack("queue-why"), job=attack("job"), node=attack("node"), result="</x>")
    JenkinsNode.objects.update(offline_reason=attack("offline"), busy_with=attack("busy"), temporarily_offline=True)
    JenkinsJob.objects.update(problem=attack("job-problem"))
    JenkinsController.objects.update(alarm=attack("alarm"), trouble=attack("trouble"), version=attack("version"))
    PowerCycle.objects.update(reason=attack("power"))
    Transition.objects.update(reason=attack("step"), actor=attack("actor"))


@pytest.fixture
def attacked(virtual_verdicts: None, settings: Settings) -> Series:
    settings.DISPATCHER, settings.JENKINS_URL = "jenkins", CONTROLLER
    series = busy_site()
    busy_lab()
    moved_timeline("moved")
    Series.objects.update(
        subject=attack("subject"),
        author_name=attack("author"),
        author_address=attack("address"),
        reason=attack("series-reason"),
        change_id=attack("change-id"),
        base_commit="</dd><script>x</script>",
    )
    Series.objects.filter(pk=series.pk).update(
        tags=[attack("tag-word")],
        prerequisites=[attack("prerequisite")],
        benchmarks=[attack("benchmark")],
        trailers=[attack("series-trailer")],
        base_how=attack("base-how"),
        base_certain=False,
    )
    Patch.objects.update(
        subject=attack("patch"),
        trailers=[attack("trailer")],
    )
    Message.objects.update(author_name=attack("patch-author"), paths=[attack("path")])
    attack_mails()
    attack_tree(series)
    Revision.objects.update(subject=attack("revision"), author=attack("commit-author"))
    MachineQuestion.objects.update(detail=attack("question"))
    Tree.objects.update(url=attack("tree-url"), last_error=attack("tree-error"))
    MailingList.objects.update(url=f"https://x/{attack('list-url')}", last_error=attack("list-error"))
    Build.objects.update(reason=attack("build-reason"), log_tail=attack("log"), compiler_version=attack("compiler"))
    Machine.objects.update(
        health_reason=attack("health"),
        driver_options={attack("option"): attack("option-value")},
    )
    attack_lab()
    Session.objects.update(reason=attack("session-reason"))
    Boot.objects.update(
        reason=attack("boot-reason"),
        notes=[{"benchmark": attack("note"), "case": attack("note-case"), "reason": attack("note-reason")}],
    )
    tell_boots(Boot.objects.all(), facts={"cmdline": attack("cmdline")}, console=attack("console"))
    for machine in Machine.objects.all():
        keep_facts_of_machine(machine, {attack("fact"): attack("fact-value"), "flags": [attack("flag")] * 20})
    gap = {"machine": attack("gap-machine"), "uarch": attack("gap-uarch"), "reason": attack("gap")}
    Finding.objects.update(headline=attack("headline"), reason=attack("finding"), gaps=[gap])
    Report.objects.update(
        subject=attack("mail-subject"), body=attack("mail-body"), to=[attack("to")], cc=[attack("cc")]
    )
    Delivery.objects.update(reason=attack("delivery"), message_id=attack("message-id"))
    Metric.objects.update(unit="<script>alert('unit')</script>")
    return series


def test_nothing_that_strangers_wrote_becomes_markup(staff: Reader, attacked: Series) -> None:
    paths = ["/", "/series/", "/machines/", "/builders/", "/queue/", "/status/", "/trees/stable/", "/trees/moved/"]
    paths += [f"/trees/stable/?{table}=1" for table in ("moves", "wanted", "tags")]
    paths += ["/trees/moved/branches/mm/unstable/", f"/timelines/{Timeline.objects.get().pk}/"]
    paths += [f"/builders/{name}/" for name in Builder.objects.values_list("name", flat=True)]
    paths += [f"/builds/{pk}/" for pk in Build.objects.values_list("pk", flat=True)]
    paths += [f"/messages/{pk}/" for pk in Message.objects.values_list("pk", flat=True)[:3]]
    numbers = Series.objects.values_list("pk", flat=True)
    paths += [f"/series/{pk}/{part}" for pk in numbers for part in ("", *(f"{slug}/" for slug in PARTS))]
    finding = f"/findings/{attacked.finding.pk}/"
    paths += [f"{finding}{part}" for part in ("", *(f"{slug}/" for slug in FINDING_PARTS))]
    paths.append("/compare/")
    paths += [f"/sessions/{pk}/" for pk in Session.objects.values_list("pk", flat=True)]
    paths += [f"/machines/{name}/" for name in Machine.objects.values_list("name", flat=True)]
    # Staff see all that others see, and logs.
    texts = [staff.read(path) for path in paths]
    assert [path for path, text in zip(paths, texts, strict=True) if "<script>alert" in text] == []
    everything = "".join(texts)
    # A quote in the data of a drawing ends no attribute: it stands in a script that nobody runs.
    drawn = re.compile(r'<script[^>]* type="application/json">.*?</script>', re.DOTALL)
    assert '"onload=x' not in drawn.sub("", everything)
    for name in (
        "subject", "author", "address", "change-id", "patch", "revision", "tree-url", "tree-error", "list-url",
        "build-reason", "log", "compiler", "health", "fact", "fact-value", "flag", "option", "option-value",
        "session-reason", "boot-reason", "console", "cmdline", "note", "note-case", "note-reason", "headline", "gap",
        "tag-word", "prerequisite", "benchmark", "series-trailer", "base-how", "patch-author", "path", "trailer",
        "mail-id", "mail-head", "sender", "sender-address", "proof", "parent", "raw", "mail-reason", "branch-forced",
        "decision", "why", "commit-author", "question", "git-tag", "pattern", "merger",
        "state-reason", "capability", "first-error", "removal", "fragment-lines", "own-lines", "attempt", "progress",
        "agent-host", "attempt-log", "queue-why", "job", "node", "offline", "busy", "job-problem", "alarm", "trouble",
        "version", "power", "step", "actor",
        "mail-subject", "mail-body", "to", "cc", "delivery", "message-id", "unit",
    ):  # fmt: skip
        assert f"alert(&#x27;{name}&#x27;)" in everything, name
    # Inside the chart data the same text is escaped for scripts instead.
    assert "\\u003Cscript\\u003Ealert('unit')" in everything
