"""`manage.py doctor`: what is broken here is named, with its code and what mends it."""

import io
import json
import zipfile
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path

import pytest
from celery import Celery
from django.core.management import call_command
from django.db import connection
from pytest_django.fixtures import Settings

from server.core import clock
from server.core.models import Begun, Transition
from server.core.rows.partitions import BOOTS
from server.operations import pulse
from server.operations.diagnosis import ailment as told
from server.operations.diagnosis import checks, host, servers
from server.operations.diagnosis.ailment import Ailment, Severity
from server.operations.standing import Disk
from server.sources.mirror import mirror
from server.sources.models import Tree
from tests.house.sources import ROOT


def codes(found: Iterable[Ailment]) -> list[str]:
    return [one.code for one in found]


@pytest.fixture
def dead_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = Celery("dead", broker="redis://127.0.0.1:1/0", set_as_current=False)
    monkeypatch.setattr(pulse, "current_app", dead)


def test_every_code_is_told_in_the_documents() -> None:
    document = (ROOT / "docs/operations/watching.md").read_text(encoding="utf-8")
    assert [code for code in told.CODES if f"`{code}`" not in document] == []


@pytest.mark.django_db
def test_a_database_that_is_away_is_the_one_thing_told_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "get_connection_params", lambda: {"host": "/nonexistent", "dbname": "tidemark"})
    assert codes(servers.database_ailments()) == ["database-unreachable"]


@pytest.mark.django_db
def test_a_migration_that_is_missing_is_named() -> None:
    assert codes(servers.migration_ailments()) == []
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'reports'")
    found = list(servers.migration_ailments())
    assert codes(found) == ["migrations-missing"]
    assert "reports.0001_initial" in found[0].what
    assert found[0].mend == "manage.py migrate"


@pytest.mark.usefixtures("dead_broker")
def test_a_broker_that_is_away_is_told_once() -> None:
    assert codes(servers.broker_ailments()) == ["broker-unreachable"]


def test_a_broker_that_drops_messages_is_told() -> None:
    with pulse.broker() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            assert codes(servers.broker_ailments()) == ["broker-evicts"]
        finally:
            client.config_set("maxmemory-policy", "noeviction")
    assert codes(servers.broker_ailments()) == []


def test_a_site_without_workers_names_their_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_PATIENCE", 0.1)
    (found,) = servers.worker_ailments()
    assert found.code == "no-worker"
    assert "sources,builds,lab,detection,reports,upkeep" in found.mend


def test_clocks_that_differ_are_told() -> None:
    assert codes(servers._skew("x", clock.now())) == []
    assert codes(servers._skew("x", clock.now() - timedelta(seconds=60))) == ["clock-off"]


def test_a_disk_that_fills_is_told(monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path) -> None:
    settings.STATE_DIR = tmp_path
    for free, code in ((1, "disk-full"), (3, "disk-low")):
        room = Disk(free=free * 2**30, size=100 * 2**30)
        monkeypatch.setattr(host, "disk_room", lambda room=room: room)
        assert codes(host.disk_ailments()) == [code]


def test_refs_that_lead_nowhere_are_told(settings: Settings, tmp_path: Path) -> None:
    settings.STATE_DIR = tmp_path
    assert codes(host.mirror_ailments()) == []
    repository = mirror()
    assert codes(host.mirror_ailments()) == []
    path = repository.git_dir / "refs/tidemark/trees/mainline"
    path.mkdir(parents=True)
    (path / "master").write_text("1" * 40 + "\n", encoding="utf-8")
    assert codes(host.mirror_ailments()) == ["mirror-broken"]


def test_a_secret_that_others_can_read_is_told(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text("secret", encoding="utf-8")
    monkeypatch.setenv("TIDEMARK_SECRET_KEY_FILE", str(file))
    for mode, expected in ((0o640, []), (0o644, ["secret-readable"])):
        file.chmod(mode)
        assert [one.code for one in host.secret_ailments() if str(file) in one.what] == expected


def test_what_holds_no_secret_may_be_read(monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path) -> None:
    settings.ALIVE_FILE = str(tmp_path / "alive")
    Path(settings.ALIVE_FILE).touch(mode=0o644)
    # As in the images and the units.
    for name, value in (("TIDEMARK_ENV_FILE", "/dev/null"), ("TIDEMARK_ALIVE_FILE", settings.ALIVE_FILE)):
        monkeypatch.setenv(name, value)
        assert [one.what for one in host.secret_ailments() if value in one.what] == []


def test_keys_of_mail_are_looked_at(monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path) -> None:
    assert codes(host.mail_ailments()) == []
    settings.MAIL_ENABLED, settings.DKIM_KEYS = True, []
    assert codes(host.mail_ailments()) == ["dkim-missing"]
    settings.DKIM_KEYS = [f"a={tmp_path / 'none'}"]
    assert codes(host.mail_ailments()) == ["dkim-unusable"]
    monkeypatch.setattr(host, "signing_keys", lambda: [object()])
    monkeypatch.setattr(host, "told_by_dns", lambda _key: "there is no TXT record")
    assert codes(host.mail_ailments()) == ["dkim-mismatch"]


def test_a_package_of_older_sources_is_told(settings: Settings, tmp_path: Path) -> None:
    settings.BASE_DIR = tmp_path
    settings.LOCAL_AGENT = str(tmp_path / "agent.pyz")
    assert codes(host.agent_ailments()) == ["agent-missing"]
    source = tmp_path / "agents/tidemark_agent/run.py"
    source.parent.mkdir(parents=True)
    source.write_text("new", encoding="utf-8")
    for content, expected in (("new", []), ("old", ["agent-stale"])):
        with zipfile.ZipFile(settings.LOCAL_AGENT, "w") as archive:
            archive.writestr("tidemark_agent/run.py", content)
        assert codes(host.agent_ailments()) == expected


@pytest.mark.django_db
def test_watchers_tasks_and_partitions_are_told() -> None:
    Tree.objects.create(name="late", url="https://example.org/late.git", polled_at=clock.now() - timedelta(days=1))
    Tree.objects.create(
        name="sick", url="https://example.org/sick.git", polled_at=clock.now(), failing_since=clock.now()
    )
    found = {one.code: one for one in checks.watcher_ailments()}
    assert found.keys() == {"watcher-behind", "watcher-failing"}
    assert "manage.py fetch_tree late" in found["watcher-behind"].mend
    Begun.objects.create(key="detection.look 7", given_up=True)
    assert codes(checks.task_ailments()) == ["task-given-up"]
    # Steps of all but boots have a part without an end, which is filled on every site.
    Transition.objects.create(trace="t", subject="series", subject_id=1, after="ready")
    Transition.objects.create(trace="t", subject="boot", subject_id=1, after="planned")
    assert codes(checks.partition_ailments()) == []
    Transition.objects.create(trace="t", subject="boot", subject_id=BOOTS * 9, after="planned")
    assert codes(checks.partition_ailments()) == ["default-partition-filled"]


@pytest.mark.parametrize(
    ("found", "end"),
    [
        ([], 0),
        (["disk-low"], 1),
        (["disk-low", "no-worker"], 2),
    ],
)
def test_the_end_tells_scripts_how_bad_it_is(monkeypatch: pytest.MonkeyPatch, found: list[str], end: int) -> None:
    ailments = [told.ailment(code, "what", "mend") for code in found]
    monkeypatch.setattr("server.operations.management.commands.doctor.diagnose", lambda: ailments)
    out = io.StringIO()
    assert _ended(lambda: call_command("doctor", "--json", stdout=out)) == end
    assert [one["code"] for one in json.loads(out.getvalue())] == found
    assert all(one.severity in Severity for one in ailments)


def _ended(run: Callable[[], object]) -> int:
    try:
        run()
    except SystemExit as end:
        return int(end.code or 0)
    return 0
