"""schemathesis: whatever a script asks, no server error, and every answer has the described form."""

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from django.contrib.auth.models import User
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytest_django import DjangoDbBlocker

from server.core.access.people import issue_person_token
from server.core.models import PersonToken
from server.detection.models import (
    Acceptance,
    ChangePoint,
    MachineQuestion,
    MeasuredHead,
    NoiseProfile,
    Timeline,
    TimelinePoint,
    Verdict,
)
from server.lab.dispatch.jenkins.models import JenkinsRun
from server.lab.models import Attempt, Session, Trial
from server.reports.models import Delivery
from server.reports.writing import compose_report
from server.sources.models import Branch, Epoch, HeadMove, Series, Tag, WantedRevision
from tests.builders import (
    EPOCH,
    build_attempt,
    build_build,
    build_builder,
    build_comparison,
    build_finding,
    build_health_session,
    build_measurement,
    build_power_cycle,
    build_series,
    build_session,
)
from tests.kept import kept_rows, settle

pytestmark = pytest.mark.django_db
_LISTS = ["series_list", "machine_list", "finding_list", "tree_list", "list_list", "message_list", "branch_list"]
_LISTS += ["head_move_list", "wanted_revision_list", "tag_list", "build_list", "session_list", "attempt_list"]
_LISTS += ["power_cycle_list", "builder_list", "queue", "timeline_list", "machine_question_list"]
_LISTS += [
    "uarch_list",
    "benchmark_list",
    "case_list",
    "metric_list",
    "report_list",
    "delivery_list",
    "mail_command_list",
    "acceptance_list",
]
# The client in here unpacks nothing.
_PLAIN = {"Accept-Encoding": "identity"}
_DETAILS = ["series_detail", "series_case", "series_history", "session_detail", "session_samples", "session_cells"]
_DETAILS += ["series_patches", "finding_case"]
_DETAILS += ["attempt_detail", "builder_detail"]
_READING = [*_LISTS, *_DETAILS, "machine_detail", "finding_detail", "build_detail", "tree_detail", "message_detail"]
_READING += ["machine_noise", "timeline_detail", "measurement_list", "compare", "what_if", "series_approval"]
_READING += ["timeline", "catalogue"]
# The stream is no JSON, not every finding has something to say to other systems, and whose subscriptions are read is
# asked first: these have tests of their own.
_APART = [
    "transitions",
    "subscription_list",
    "finding_patchwork",
    "finding_kcidb",
    "finding_regzbot",
    "finding_trailers",
]


@pytest.fixture(autouse=True)
def one_connection() -> Iterator[None]:
    """Requests share the test's transaction, as they do with Django's own test client."""
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    yield
    for signal in signals:
        signal.connect(close_old_connections)


@pytest.fixture(scope="module")
def rows(
    operations: dict[str, Any], django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    # Reading the description is a request, at whose end the connection is closed: it comes first.
    with kept_rows(django_db_blocker, tmp_path_factory.mktemp("state")):
        made = _rows()
        settle()
        yield made


def _rows() -> dict[str, Any]:
    """One series that went all the way, and the ids under which each endpoint finds a part of it."""
    series = build_series()
    session = build_session(series, state=Session.State.DONE)
    _watched(series)
    build_comparison(session, Verdict.REGRESSED)
    for boot in session.boots.all():
        build_measurement(boot, [2000.0, 1000.0, 1001.0])
    attempt = _dispatched(session)
    finding = build_finding(series, gaps=[{"machine": "a", "uarch": "b", "reason": "c"}])
    compose_report(finding_id=finding.pk)
    Delivery.objects.create(report=finding.report, message_id="report-1@example.org", state="queued")
    Acceptance.objects.create(finding=finding, uarchs=["haswell"], reason="the price of a fix", person="ada")
    return {
        "series": series.pk,
        "benchmark": "mm-basic",
        "case": "fault-4k",
        "session": session.pk,
        "machine": session.machine.name,
        "finding": finding.pk,
        "build": session.base_build_id,
        "what": {"machine": session.machine.name, "boots": 4},
        "compare": {"base": f"build:{session.base_build_id}", "patched": f"build:{session.patched_build_id}"},
        "builder": build_builder().name,
        "attempt": attempt.key,
        "tree": session.base_build.revision.tree.name,
        "message": series.cover_id,
        "timeline": _looked_at(session).pk,
    }


def _looked_at(session: Session) -> Timeline:
    """A timeline with a point and a step; noise of the machine and a question about it."""
    comparison = session.comparisons.get()
    revision = session.base_build.revision
    cell = {"machine": session.machine, "case": comparison.case, "metric": comparison.metric}
    cell["core_type"] = comparison.core_type
    branch = revision.tree.branches.create(name="looked-at")
    trial = Trial.objects.create(key="head:1", purpose="head", base=revision, patched=revision, looks=[3], state="done")
    head = MeasuredHead.objects.create(branch=branch, revision=revision, reference=revision, place=1, trial=trial)
    timeline = Timeline.objects.create(branch=branch, reference=revision, **cell)
    TimelinePoint.objects.create(timeline=timeline, head=head, comparison=comparison, place=1, ratio=1.0)
    ChangePoint.objects.create(
        timeline=timeline, first_place=1, place=1, before_place=0, effect=0.1, score=6.0, state="suspect"
    )
    NoiseProfile.objects.create(
        comparisons=3, false_alarms=0, rejections=0, change_95=0.01, changes=[0.001], last_at=EPOCH, **cell
    )
    MachineQuestion.objects.create(key="event:1", kind="event", machine=session.machine, detail="moved", state="open")
    return timeline


def _dispatched(session: Session) -> Attempt:
    """An attempt at a controller; a health session, a build and a power cycle that wait."""
    attempt = build_attempt(session, adapter="jenkins", lease_until=EPOCH, posts=1)
    JenkinsRun.objects.create(attempt=attempt, job="session-a", number=7, why="waiting")
    build_build(state="wanted", first_error="mm/memory.c:1: error")
    build_health_session(session.machine)
    build_power_cycle(session.machine)
    return attempt


def _watched(series: Series) -> None:
    """A branch of the series' tree with a move, a tag and a chosen revision; an epoch of its list."""
    assert series.base is not None
    tree = series.base.tree
    branch = Branch.objects.create(tree=tree, name="main", head=series.base, head_at=EPOCH)
    HeadMove.objects.create(branch=branch, kind=HeadMove.Kind.CREATED, after=series.base)
    Tag.objects.create(tree=tree, name="v6.1", revision=series.base)
    WantedRevision.objects.create(tree=tree, revision=series.base, why=WantedRevision.Why.TAG, detail="v6.1")
    Epoch.objects.create(mailing_list=series.mailing_list, number=0, last_commit=series.base.sha)


@pytest.fixture(scope="module")
def operations(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> dict[str, Any]:
    """Once for all tests: reading the description takes longer than asking."""
    # Loading it takes seconds, in processes that run no test of this module, too.
    import schemathesis

    with django_db_blocker.unblock():
        schema: Any = schemathesis.openapi.from_wsgi("/api/v1/schema/", get_wsgi_application())
    return {result.ok().definition.raw["operationId"]: result.ok() for result in schema.get_all_operations()}


@pytest.fixture(scope="module")
def checks() -> list[Any]:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    described = [checks.status_code_conformance, checks.content_type_conformance, checks.response_schema_conformance]
    return [not_a_server_error, *described]


def test_these_are_all_endpoints_for_reading(operations: dict[str, Any]) -> None:
    reading = [name for name, operation in operations.items() if operation.method.upper() == "GET"]
    assert sorted(name for name in reading if not name.startswith("agent")) == sorted([*_READING, *_APART])


@pytest.mark.parametrize("name", _READING)
def test_answers_about_real_rows_have_the_described_form(
    operations: dict[str, Any], checks: list[Any], rows: dict[str, Any], name: str
) -> None:
    operation = operations[name]
    own = rows.get(name.split("_", maxsplit=1)[0])
    parameters = {parameter.name: rows.get(parameter.name, own) for parameter in operation.path_parameters}
    # Of measurements nobody may ask for all, and a comparison needs two kernels.
    query = {"session": rows["session"]} if name == "measurement_list" else own if isinstance(own, dict) else {}
    case = operation.Case(path_parameters=parameters, query=query)
    response = case.call_and_validate(checks=checks, headers=_PLAIN)
    assert response.status_code == 200
    # The description allows a part of the fields as well, for who asks for them.
    jsonschema.validate(response.json(), {**_whole(operation), "components": _components(operation)})


def _whole(operation: Any) -> dict[str, Any]:
    form: dict[str, Any] = operation.definition.raw["responses"]["200"]["content"]["application/json"]["schema"]
    return form["anyOf"][0] if "anyOf" in form else form


def _components(operation: Any) -> Any:
    return operation.schema.raw_schema["components"]


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("name", _READING)
def test_no_question_makes_a_server_error(operations: dict[str, Any], checks: list[Any], name: str) -> None:
    @settings(max_examples=15, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        data.draw(operations[name].as_strategy()).call_and_validate(checks=checks, headers=_PLAIN)

    ask()


_ACTING = ["series_submit", "series_approve", "series_retest", "finding_withdraw", "finding_reopen", "finding_fix"]
_ACTING += ["finding_duplicate", "report_hold", "report_release", "report_edit"]
_ACTING += ["finding_accept", "acceptance_withdraw", "report_approve", "report_reject", "machine_maintenance"]
_ACTING += ["build_again", "finding_assign", "machine_enrolment", "enrolments_create"]
_ACTING += ["finding_retest", "subscription_make", "subscription_change", "subscription_secret", "subscription_end"]


@pytest.fixture(scope="module")
def token(rows: dict[str, Any], django_db_blocker: DjangoDbBlocker) -> str:
    with django_db_blocker.unblock():
        admin = User.objects.create_superuser("root")
        return issue_person_token(admin, name="fuzz", scopes=PersonToken.Scope.values).secret


def test_these_are_all_by_which_people_act(operations: dict[str, Any]) -> None:
    acting = [name for name, operation in operations.items() if operation.method.upper() == "POST"]
    assert sorted(name for name in acting if not name.startswith("agent")) == sorted(_ACTING)


@pytest.mark.parametrize("name", _ACTING)
def test_no_act_makes_a_server_error(
    operations: dict[str, Any], checks: list[Any], rows: dict[str, Any], token: str, name: str
) -> None:
    own = rows.get(name.split("_", maxsplit=1)[0])
    headers = {**_PLAIN, "Authorization": f"Bearer {token}"}

    @settings(max_examples=10, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def act(data: st.DataObject) -> None:
        case = data.draw(operations[name].as_strategy())
        if own is not None and data.draw(st.booleans()):
            case.path_parameters = dict.fromkeys(case.path_parameters or {}, own)
        case.call_and_validate(checks=checks, headers=headers)

    act()
