"""A page costs the same number of queries, however much it shows."""

import re
from collections.abc import Callable, Mapping, Sequence

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from server.core import clock
from server.core.models import ApiToken
from server.dashboard.verdicts.series_parts import PARTS
from server.lab.dispatch.jenkins.models import JenkinsRun
from server.lab.hosts.tokens import issue_host_token
from server.lab.models import Builder
from server.sources.models import Branch, Epoch, HeadMove, Message, Series, Tag, Thread, Tree, WantedRevision
from tests.builders import (
    build_attempt,
    build_build,
    build_builder,
    build_list,
    build_machine,
    build_message,
    build_power_cycle,
    build_revision,
    build_series,
    build_session,
    build_tree,
)
from tests.found_scenarios import moved_timeline
from tests.lab_scenarios import busy_lab
from tests.scenarios import broken_build, busy_site, erms_regression, half_measured

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("virtual_verdicts")]


@pytest.fixture
def queries(client: Client) -> Callable[..., int]:
    def count(path: str, status: int = 200) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert client.get(path).status_code == status
        return len(captured)

    return count


def test_home_needs_the_same_queries_for_one_series_and_for_many(queries: Callable[[str], int]) -> None:
    erms_regression()
    half_measured()
    moved_timeline()
    before = queries("/")
    for number in range(3):
        build_tree(f"tree-{number}")
        build_list(f"list-{number}")
        build_machine(f"bench-{number}", "zen5")
        build_series(state=Series.State.HELD)
        build_session(build_series(), build_machine(f"bench-{number}", "zen5"))
    erms_regression()
    broken_build()
    moved_timeline("mm")
    assert queries("/") == before
    assert before <= 12


def test_list_of_series_needs_the_same_queries_for_one_and_for_many(queries: Callable[[str], int]) -> None:
    erms_regression()
    before = queries("/series/")
    erms_regression()
    build_series(state=Series.State.HELD)
    assert queries("/series/") == before
    assert before <= 6


def test_status_page_needs_the_same_queries_for_one_of_each_and_for_many(queries: Callable[[str], int]) -> None:
    watched("one")
    before = queries("/status/")
    for number in range(4):
        watched(f"many-{number}")
        machine = build_machine(f"machine-{number}", "zen3")
        issue_host_token(machine.name, ApiToken.Scope.MACHINE, days=1)
    assert queries("/status/") == before <= 12


def test_tree_page_needs_the_same_queries_for_few_rows_and_for_many(queries: Callable[[str], int]) -> None:
    tree = watched("one")
    before = queries("/trees/one/")
    for number in range(4):
        watch_branch(tree, f"branch-{number}")
    assert queries("/trees/one/") == before
    assert before <= 12
    for table in ("moves", "wanted", "tags"):
        assert queries(f"/trees/one/?{table}=1") <= 12


def test_pages_of_measured_trees_need_few_queries(queries: Callable[[str], int]) -> None:
    timeline = moved_timeline()
    tree, branch = timeline.branch.tree.name, timeline.branch.name
    for path in (f"/trees/{tree}/", f"/trees/{tree}/branches/{branch}/", f"/timelines/{timeline.pk}/"):
        assert queries(path) <= 12, path
    assert queries(f"/trees/{tree}/feed/") <= 3
    assert queries("/findings/feed/") <= 2


def test_message_page_needs_the_same_queries_for_a_short_thread_and_a_long_one(queries: Callable[[str], int]) -> None:
    series = build_series()
    before = queries(f"/messages/{series.cover_id}/")
    Message.objects.update(thread=Thread.objects.create())
    for _ in range(4):
        build_message(thread=Thread.objects.get())
    assert queries(f"/messages/{series.cover_id}/") == before <= 8


def test_series_page_needs_the_same_queries_for_few_patches_and_for_many(queries: Callable[[str], int]) -> None:
    few, many = (build_series(total=total, state=Series.State.HELD) for total in (1, 6))
    assert queries(f"/series/{few.pk}/") == queries(f"/series/{many.pk}/") <= 20


def watched(name: str) -> Tree:
    """A tree with a branch, a tag and a choice; a list with an epoch and a mail; a held series."""
    tree = build_tree(name)
    watch_branch(tree, "main")
    mailing_list = build_list(f"list-{name}", tree=tree)
    Epoch.objects.create(mailing_list=mailing_list, number=0)
    build_message(mailing_list, reason="not used")
    build_series(mailing_list, state=Series.State.HELD)
    return tree


def watch_branch(tree: Tree, name: str) -> None:
    revision = build_revision(tree)
    branch = Branch.objects.create(tree=tree, name=name, head=revision, head_at=clock.now())
    HeadMove.objects.create(branch=branch, kind=HeadMove.Kind.FORCED, before=revision, after=revision)
    WantedRevision.objects.create(tree=tree, revision=revision, why=WantedRevision.Why.HEAD)
    Tag.objects.create(tree=tree, name=f"tag-{name}", revision=revision)


# Charts and histories are put together from many tables.
_MOST: Mapping[str, int] = {"boots/": 18, "history/": 16, "kernels/": 16, "way/": 14}


def test_series_page_needs_the_same_queries_for_few_boots_and_for_many(queries: Callable[[str], int]) -> None:
    few, many = erms_regression(boots_per_side=2), erms_regression(boots_per_side=5)
    for part in ("", *(f"{slug}/" for slug in PARTS)):
        assert queries(f"/series/{few.pk}/{part}") == queries(f"/series/{many.pk}/{part}") <= _MOST.get(part, 12), part
    finding, other = few.finding, many.finding
    for part in ("", "figures/", "boots/", "why/", "sessions/", "life/"):
        before = queries(f"/findings/{finding.pk}/{part}")
        assert before == queries(f"/findings/{other.pk}/{part}") <= _MOST.get(part, 12), part


def test_comparison_of_two_kernels_needs_few_queries(queries: Callable[..., int]) -> None:
    sides = [erms_regression(boots_per_side=boots).sessions.order_by("pk") for boots in (2, 5)]
    few, many = ((one.base_build.revision.sha, one.patched_build.revision.sha) for one in (of[0] for of in sides))
    heads = [point.head.revision.sha for point in moved_timeline().points.order_by("place")[39:41]]
    for base, patched in (few, many, heads, (few[0], many[1]), ("", ""), ("nothing", few[0])):
        with_status = 400 if base == "nothing" else 200
        assert queries(f"/compare/?base={base}&patched={patched}", with_status) <= 12, (base, patched)
    assert queries(f"/api/v1/compare/?base={few[0]}&patched={few[1]}") <= 12


def test_session_page_needs_the_same_queries_for_few_boots_and_for_many(queries: Callable[[str], int]) -> None:
    few, many = (erms_regression(boots_per_side=n).sessions.first() for n in (2, 5))
    assert few is not None
    assert many is not None
    assert queries(f"/sessions/{few.pk}/") == queries(f"/sessions/{many.pk}/") <= 21


def test_machine_pages_need_the_same_queries_for_one_and_for_many(queries: Callable[[str], int]) -> None:
    machine = erms_regression().sessions.get(machine__name="vm-zen3").machine
    build_session(machine=machine)
    build_attempt(build_power_cycle(machine), state="done")
    # The local dispatcher's builder is made when it is first asked for.
    queries("/queue/")
    before = queries("/machines/"), queries("/machines/vm-zen3/")
    erms_regression()
    build_session(machine=build_machine("bench-1", "zen5"))
    build_attempt(build_session(machine=machine))
    build_power_cycle(machine, state="done")
    assert (queries("/machines/"), queries("/machines/vm-zen3/")) == before
    assert before[0] <= 13
    assert before[1] <= 43


def test_builder_pages_need_the_same_queries_for_few_builds_and_for_many(queries: Callable[[str], int]) -> None:
    builder = build_builder()
    build_attempt(build_build(), state="done", builder=builder)
    build_attempt(build_build(state="running"), builder=builder)
    before = queries("/builders/"), queries("/builders/builder-1/")
    for _ in range(4):
        build_attempt(build_build(), state="done", builder=builder)
        build_attempt(build_build(state="running"), builder=builder)
    build_builder("builder-2")
    assert (queries("/builders/"), queries("/builders/builder-1/")) == before
    assert before[0] <= 1
    assert before[1] <= 9


def test_build_page_needs_the_same_queries_for_one_series_and_for_many(queries: Callable[[str], int]) -> None:
    session = build_session()
    build = session.base_build
    build_attempt(build, state="done")
    before = queries(f"/builds/{build.pk}/")
    for number in range(4):
        series = build_series(base=build.revision, head=build_revision(build.revision.tree, build.revision))
        build_session(series, build_machine(f"bench-{number}", "zen5"))
        build_attempt(build, state="done")
    assert queries(f"/builds/{build.pk}/") == before <= 10


def test_queue_needs_the_same_queries_for_one_of_each_and_for_many(queries: Callable[[str], int]) -> None:
    def waiting(number: int) -> None:
        machine = build_machine(f"bench-{number}", "zen5")
        build_session(machine=machine)
        build_power_cycle(machine)
        build_build(state="wanted")

    waiting(0)
    queries("/queue/")
    before = queries("/queue/")
    for number in range(1, 5):
        waiting(number)
    assert queries("/queue/") == before <= 34


_LOGS = re.compile(r'"(?:log|log_tail|first_error|console)"(?:,| FROM| AS)')


def test_pages_of_builders_read_no_log_and_of_attempts_only_for_staff(client: Client, admin_client: Client) -> None:
    builder = build_builder()
    session = build_session()
    for work, state in ((build_build(), "done"), (build_build(state="running"), "running"), (session, "running")):
        host = {} if work is session else {"builder": builder}
        attempt = build_attempt(work, state=state, log=f"log of {state}", adapter="jenkins", fault="host", **host)
        JenkinsRun.objects.create(attempt=attempt, job="a-job", console=f"console of {state}")
    machine = f"/machines/{session.machine.name}/"
    for path in ("/builders/", "/builders/builder-1/", machine, f"/sessions/{session.pk}/"):
        with CaptureQueriesContext(connection) as captured:
            assert "of running" not in client.get(path).content.decode()
        assert [query["sql"] for query in captured if _LOGS.search(query["sql"])] == [], path
        if path != "/builders/":
            page = admin_client.get(path).content.decode()
            assert "log of running" in page, path
            assert "console of running" in page, path


# Columns of which one row may have kilobytes or more, by table: whoever reads many rows leaves them out.
_LONG: Mapping[str, Sequence[str]] = {
    "builds_build": ("first_error", "log_tail"),
    "builds_configfragment": ("lines",),
    "builds_kernelconfig": ("fragment",),
    "detection_finding": ("checks", "counters", "explanations", "gaps"),
    "detection_timeline": ("watch",),
    "jenkins_jenkinsrun": ("console",),
    "lab_attempt": ("log",),
    "lab_boot": ("notes",),
    "lab_conditions": ("console_tail", "document", "facts"),
    "lab_facts": ("document",),
    "lab_machinefacts": ("document",),
    "reports_report": ("body",),
    "results_measurement": ("values",),
    "sources_patch": ("trailers",),
    "sources_series": ("trailers",),
    "sources_message": Message.LONG,
}
_TRAILERS = ("sources_patch.trailers", "sources_series.trailers")
_OF_FINDING = tuple(f"detection_finding.{name}" for name in _LONG["detection_finding"])
_OF_BUILD = ("builds_build.first_error", "builds_build.log_tail", "builds_kernelconfig.fragment")
# The facts of its boots; the consoles of those that failed.
_OF_BOOTS = ("lab_conditions.console_tail", "lab_conditions.facts", "lab_facts.document")
# A column as SELECT lists it; not where it is compared, counted or asked for one key.
_READ = re.compile(r'"(\w+)"\."(\w+)"(?=,| FROM| AS)')
# Everything that lists several things. Pages of one thing show what is long of it, not of what it names.
_LISTS = (
    *("/", "/series/", "/machines/", "/builders/", "/findings/", "/queue/", "/status/", "/trees/{tree}/"),
    *("/builders/{builder}/", "/trees/{tree}/branches/main/", "/findings/feed/", "/trees/{tree}/feed/"),
    *("/api/v1/series/", "/api/v1/series/{series}/history/", "/api/v1/sessions/", "/api/v1/machines/"),
    *("/api/v1/machine-questions/", "/api/v1/builders/", "/api/v1/findings/", "/api/v1/timelines/"),
    *("/api/v1/builds/", "/api/v1/attempts/", "/api/v1/power-cycles/", "/api/v1/queue/", "/api/v1/trees/"),
    *("/api/v1/branches/", "/api/v1/head-moves/", "/api/v1/wanted-revisions/", "/api/v1/tags/", "/api/v1/lists/"),
    *("/api/v1/messages/", "/api/v1/sessions/{session}/cells/", "/api/v1/machines/{machine}/noise/"),
)
# Pages of one thing, with what they show of it at length.
_SHOWN: Mapping[str, set[str]] = {
    "/series/{series}/": {"sources_series.trailers", *_OF_FINDING},
    "/series/{series}/boots/": {"results_measurement.values", "sources_series.trailers", *_OF_FINDING},
    "/series/{series}/kernels/": {
        *("builds_build.first_error", "builds_build.log_tail", "sources_message.paths"),
        *("sources_series.trailers", *_OF_FINDING),
    },
    "/series/{series}/patches/": {"sources_message.paths", *_TRAILERS, *_OF_FINDING},
    "/series/{series}/mail/": {"reports_report.body", "sources_series.trailers", *_OF_FINDING},
    "/machines/{machine}/": {"lab_machinefacts.document"},
    # The beginning of it.
    "/messages/{message}/": {"sources_message.raw"},
    "/sessions/{session}/": {"lab_boot.notes", "results_measurement.values", *_OF_BOOTS},
    "/findings/{finding}/": {*_OF_FINDING},
    "/builds/{build}/": {*_OF_BUILD, "builds_configfragment.lines"},
    "/api/v1/series/{series}/": {"reports_report.body", "sources_message.paths", *_TRAILERS},
    "/api/v1/sessions/{session}/": {"lab_boot.notes"},
    "/api/v1/findings/{finding}/": {*_OF_FINDING},
    "/api/v1/builds/{build}/": {*_OF_BUILD},
    "/api/v1/machines/{machine}/": {"lab_machinefacts.document"},
}


def test_no_list_reads_what_is_long_and_not_shown(client: Client) -> None:
    series = busy_site()
    busy_lab()
    watched("one")
    session = series.sessions.get(machine__name="vm-zen3")
    names = {
        "series": series.pk,
        "session": session.pk,
        "machine": session.machine.name,
        "builder": Builder.objects.values_list("name", flat=True)[0],
        "tree": "one",
        "message": series.cover_id,
        "finding": series.finding.pk,
        "build": session.base_build_id,
    }
    paths = [*_LISTS, *_SHOWN]
    read = {path: _long_columns(client, path.format(**names)) for path in paths}
    assert {path: sorted(columns - _SHOWN.get(path, set())) for path, columns in read.items()} == {
        path: [] for path in paths
    }


def _long_columns(client: Client, path: str) -> set[str]:
    with CaptureQueriesContext(connection) as captured:
        answer = client.get(path)
    assert (path, answer.status_code) == (path, 200)
    read = {column for query in captured for column in _READ.findall(query["sql"])}
    return {f"{table}.{column}" for table, column in read if column in _LONG.get(table, ())}
