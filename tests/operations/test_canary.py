"""The canary: from its own mail to its own mailbox, and what happens where it gets stuck."""

import io
from datetime import timedelta
from pathlib import Path

import pytest
import time_machine
from django.contrib.auth.models import User
from django.core import mail
from django.core.management import call_command
from django.test import Client
from pytest_django.fixtures import Settings

from server.builds.models import Artifact, Build, BuildState
from server.core import clock
from server.core.errors import DomainError
from server.detection.models import Finding
from server.detection.on_trial_over import answer_trial
from server.detection.trials.look import look_at_trial
from server.lab.models import Boot, Canary, Machine, Session, Trial
from server.lab.site import load_site
from server.lab.trials.life import plan_trial, want_series_trial
from server.operations.canary import post_canary, tend_canary
from server.operations.diagnosis.checks import canary_ailments
from server.reports.models import HookCall, Report, Subscription
from server.reports.outbox import queue_delivery, reports_without_delivery, send_delivery
from server.reports.subscribers.notices import notify, tell_what_moved
from server.reports.subscribers.ports import kcidb_report, patchwork_check
from server.reports.writing import digest_for, tell_news
from server.sources.applying.application import apply_series
from server.sources.models import MailingList, Message, Series, Tree
from server.sources.series.formation import group_stale
from server.sources.trees.fetch import fetch_tree
from server.sources.trust.series_check import check_series
from tests.builders import build_list, build_machine, build_series
from tests.detection.measured import STEADY, measure_boots
from tests.operations.test_metrics import told
from tests.sources.posting import small_tree

pytestmark = pytest.mark.django_db
SINK, OPERATORS = "sink@perf.example.org", "ops@perf.example.org"


@pytest.fixture(autouse=True)
def open_site(settings: Settings) -> None:
    settings.MAIL_ENABLED = True
    settings.MAIL_FROM = "Tidemark <tidemark@perf.example.org>"
    settings.APPLY_SANDBOX = "none"


@pytest.fixture
def machine() -> Machine:
    build_machine("other", "zen3")
    return build_machine("steady", "zen5")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    upstream = small_tree(tmp_path / "upstream")
    found = Tree.objects.create(name="stable", url=str(upstream.path), branch_patterns=["master"])
    fetch_tree(tree=found)
    return found


@pytest.fixture
def canary(tree: Tree, machine: Machine) -> Canary:
    return Canary.objects.create(
        tree=tree, machine=machine, file="mm/memory.c", to=SINK, operators=OPERATORS, cases=["mm-basic"]
    )


def posted() -> Series:
    """The newest, as far as the queue `sources` brings it."""
    tend_canary()
    group_stale()
    series = Series.objects.filter(canary=True).order_by("-pk")[0]
    check_series(series=series)
    series.refresh_from_db()
    return series


def applied(series: Series) -> Series:
    apply_series(series=series)
    series.refresh_from_db()
    assert series.state == Series.State.APPLIED, series.reason
    return series


def planned(series: Series) -> Session:
    trial = want_series_trial(series)
    assert trial is not None
    plan_trial(trial_id=trial.pk)
    # As a comment leaves it: the same kernel twice.
    Build.objects.filter(state=BuildState.WANTED).update(
        state=BuildState.BUILT, build_id="ab", kernel_hash="5" * 64, text_hash="6" * 64, compiler_version="gcc 12"
    )
    for build in Build.objects.all():
        Artifact.objects.create(build=build, kind=Artifact.Kind.IMAGE, sha256="7" * 64, size=1)
    (session,) = plan_trial(trial_id=trial.pk)
    return session


def measured(session: Session) -> Finding:
    for boot in session.boots.all():
        Boot.objects.filter(pk=boot.pk).update(
            state=Boot.State.MEASURED, boot_id=f"{boot.pk:08x}-0000-4000-8000-000000000000", build_id="ab"
        )
    measure_boots(session, session.boots.all(), {"fault-4k": STEADY})
    Session.objects.filter(pk=session.pk).update(state=Session.State.DONE)
    assert session.trial_id is not None
    for _ in range(2):
        look_at_trial(trial_id=session.trial_id)
    answer_trial(trial_id=session.trial_id)
    return Finding.objects.get(series=session.series_id)


def told_of(finding: Finding) -> Report:
    tell_news(finding_id=finding.pk)
    report = Report.objects.get(first_of=finding)
    assert send_delivery(delivery_id=queue_delivery(report=report).pk)
    return report


def come_through() -> Finding:
    finding = measured(planned(applied(posted())))
    told_of(finding)
    tend_canary()
    finding.refresh_from_db()
    return finding


def test_it_takes_the_whole_way_to_the_operators_own_mailbox(canary: Canary) -> None:
    series = posted()
    assert (series.state, series.author_address, series.canary) == (Series.State.READY, SINK, True)
    assert series.mailing_list.name == MailingList.CANARY
    session = planned(applied(series))
    assert series.base_certain is True
    # Both kernels run the same code, and it is measured all the same, where the site file says.
    assert (session.machine.name, session.state) == ("steady", Session.State.PLANNED)
    assert session.benchmarks == ["mm-basic"]
    tend_canary()
    canary.refresh_from_db()
    assert canary.stage == "sessions"
    finding = measured(session)
    assert finding.canary
    assert not finding.virtual
    told_of(finding)
    assert [letter.to for letter in mail.outbox] == [[SINK]]
    assert "canary" in mail.outbox[0].subject
    tend_canary()
    canary.refresh_from_db()
    assert (canary.stage, canary.failing_since) == ("post", None)
    assert canary.passed_at is not None
    assert canary.posted_at is not None
    assert canary.stage_since == canary.posted_at + timedelta(hours=24)
    # The next one is due tomorrow.
    tend_canary()
    assert Series.objects.filter(canary=True).count() == 1
    with time_machine.travel(clock.now() + timedelta(hours=24, minutes=5)):
        assert posted().pk != series.pk
    assert not list(canary_ailments())


def test_nobody_else_is_told_of_it(canary: Canary, client: Client, tree: Tree) -> None:
    user = User.objects.create_user("ada", "ada@example.org", "x")
    Subscription.objects.create(user=user, way=Subscription.Way.MAIL, pace=Subscription.Pace.EACH)
    began = clock.now() - timedelta(minutes=1)
    tell_what_moved()
    finding = come_through()
    Finding.objects.filter(pk=finding.pk).update(kind=Finding.Kind.REGRESSED, state=Finding.State.CONFIRMED)
    own = build_series(build_list("linux-mm"), subject="mm: Of somebody else")
    assert notify(finding_id=finding.pk) == 0
    tell_what_moved()
    assert not HookCall.objects.exists()
    assert digest_for(tree, began, clock.now() + timedelta(minutes=1)) is None
    for port in (kcidb_report, patchwork_check):
        with pytest.raises(DomainError, match="canary"):
            port(Finding.objects.get(pk=finding.pk))
    for address in (
        "/series/",
        "/",
        "/findings/",
        "/findings/feed/",
        "/trees/stable/feed/",
        "/mails/",
        "/search/?q=canary",
    ):
        assert "canary of" not in client.get(address).content.decode(), address
    for name in ("series", "findings", "reports", "deliveries", "messages", "lists"):
        rows = client.get(f"/api/v1/{name}/").json()["results"]
        assert not any("canary" in str(row) for row in rows), name
    listed = client.get("/api/v1/series/").json()["results"]
    assert [row["id"] for row in listed] == [own.pk]
    # By its own address it is there.
    page = client.get(f"/series/{finding.series_id}/").content.decode()
    assert "the service posted it to itself" in page
    assert f"/series/{finding.series_id}/" in client.get("/status/canary/").content.decode()
    assert "/status/canary/" in client.get("/status/").content.decode()


def test_what_is_stuck_alarms_once_until_one_comes_through(canary: Canary, client: Client) -> None:
    series = applied(posted())
    tend_canary()
    canary.refresh_from_db()
    assert canary.stage == "builds"
    assert told(client)["tidemark_canary_overdue{}"] == 0
    later = clock.now() + timedelta(minutes=canary.builds_minutes + 5)
    with time_machine.travel(later, tick=False):
        # Before any sweep has looked, or where none does.
        assert told(client)["tidemark_canary_overdue{}"] == 1
        assert told(client)['tidemark_canary_stage_seconds{"stage": "builds"}'] > 360 * 60
        for _ in range(3):
            tend_canary()
        assert "stage builds" in client.get("/status/").content.decode()
        (found,) = canary_ailments()
        assert found.code == "canary-overdue"
        (report,) = Report.objects.filter(finding=None)
        assert report.to == [OPERATORS]
        assert send_delivery(delivery_id=queue_delivery(report=report).pk)
        assert "builds" in mail.outbox[0].body
    with time_machine.travel(later + timedelta(days=1), tick=False):
        # The next day's takes its place; the alarm stays until that has come through.
        other = posted()
        assert other.pk != series.pk
        canary.refresh_from_db()
        assert canary.is_overdue(clock.now())
        measured_ = measured(planned(applied(other)))
        told_of(measured_)
        tend_canary()
        canary.refresh_from_db()
        assert not canary.is_overdue(clock.now())
    assert Report.objects.filter(finding=None).count() == 1


def test_one_that_waits_for_a_machine_is_not_waited_for_when_the_next_is_due(canary: Canary) -> None:
    session = planned(applied(posted()))
    tend_canary()
    with time_machine.travel(clock.now() + timedelta(days=1, hours=2)):
        # Found overdue in this look: it is given up in the same one.
        tend_canary()
    assert session.trial_id is not None
    assert Trial.objects.get(pk=session.trial_id).state == Trial.State.CANCELED
    assert Message.objects.filter(mailing_list__name=MailingList.CANARY).count() == 2


def test_a_tree_without_the_file_is_told_in_words(canary: Canary) -> None:
    canary.file = "mm/gone.c"
    canary.save()
    tend_canary()
    canary.refresh_from_db()
    assert canary.stage == "post"
    assert "mm/gone.c is no plain file of stable" in canary.detail
    with time_machine.travel(clock.now() + timedelta(hours=2)):
        tend_canary()
        (found,) = canary_ailments()
        assert "mm/gone.c" in found.what


def test_its_list_is_nobody_elses(canary: Canary) -> None:
    build_list(MailingList.CANARY, url="https://lore.example.org/canary")
    with pytest.raises(DomainError, match="its name is for the canary"):
        post_canary(canary, clock.now())
    assert not Message.objects.exists()


def test_site_file_switches_it_on_and_off(tree: Tree, machine: Machine, tmp_path: Path, settings: Settings) -> None:
    file = tmp_path / "site.toml"

    def load(more: str) -> Canary:
        words = f'[canary]\ntree = "stable"\nmachine = "steady"\nfile = "mm/memory.c"\nto = "{SINK}"\n{more}'
        file.write_text(words, encoding="utf-8")
        assert load_site(file)["canary"] == 1
        return Canary.objects.get()

    tend_canary()
    assert not Series.objects.exists()
    found = load("minutes = { builds = 30 }\n")
    assert (found.builds_minutes, found.sessions_minutes, found.every_hours, found.operators) == (30, 720, 24, "")
    assert load("every_hours = 12\n").builds_minutes == 360
    Canary.objects.update(failing_since=clock.now(), stage="builds")
    off = load("enabled = false\n")
    assert not off.enabled
    assert not off.is_overdue(clock.now())
    tend_canary()
    assert not Message.objects.exists()
    for wrong in ('file = "../x.c"', 'file = "Makefile"', 'to = "nobody"', "minutes = { lunch = 1 }", "often = 1"):
        with pytest.raises(DomainError, match=r"\[\[canary\]\]|canary"):
            load_wrong(file, wrong)
    Machine.objects.filter(pk=machine.pk).update(virtual=True)
    with pytest.raises(DomainError, match="judges no such machine"):
        load("")
    settings.VIRTUAL_VERDICTS = True
    assert load("").enabled


def load_wrong(file: Path, line: str) -> None:
    name = line.partition(" ")[0]
    words = {"tree": '"stable"', "machine": '"steady"', "file": '"mm/memory.c"', "to": f'"{SINK}"'}
    words.pop(name, None)
    file.write_text("[canary]\n" + "".join(f"{key} = {value}\n" for key, value in words.items()) + line + "\n")
    load_site(file)


def test_doctor_and_the_task_name_it(canary: Canary) -> None:
    Canary.objects.update(stage_since=clock.now() - timedelta(hours=2))
    out = io.StringIO()
    with pytest.raises(SystemExit):
        call_command("doctor", "--json", stdout=out)
    assert "canary-overdue" in out.getvalue()
    assert not reports_without_delivery()
