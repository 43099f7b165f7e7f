"""Who is told of a finding, by mail or webhook: once each, signed, and nobody of what was never his to know."""

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.core import mail
from pytest_django.fixtures import Settings

from server.core import clock
from server.core.errors import DomainError
from server.core.models import Transition
from server.detection.models import Finding, FindingVerdict
from server.lab.models import Machine, Session
from server.reports.models import Delivery, HookCall, OptOut, Report, Subscription
from server.reports.outbox import send_delivery
from server.reports.subscribers.calls import allowed_address, calls_to_send, send_call
from server.reports.subscribers.notices import notify, tell_what_moved, write_digests
from server.reports.subscribers.subscription import end_subscription, hook_secret, matches, subscribe
from tests.builders import (
    because,
    build_case,
    build_comparison,
    build_finding,
    build_list,
    build_machine,
    build_series,
    build_session,
    build_tree,
    build_uarch,
)

pytestmark = pytest.mark.django_db
ADA = "ada@example.org"


class Receiver(ThreadingHTTPServer):
    """Keeps what it was sent, and answers what the test wants."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[int] = []
        self.documents: dict[str, Any] = {}
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.got.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        status = self.server.answers.pop(0) if self.server.answers else 204
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"{self.server.url}/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        found = next((value for key, value in self.server.documents.items() if self.path.startswith(key)), None)
        self.send_response(200 if found is not None else 404)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, *_args: Any) -> None:
        """Quiet."""


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    settings.HOOK_NETWORKS = (ip_network("127.0.0.0/8"),)
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada", ADA, "a long enough word")


def found(kind: str = "regressed", *, uarch: str = "zen3", **fields: Any) -> Finding:
    """A confirmed finding of a series, with a verdict on one machine of `uarch`."""
    series = build_series(build_list())
    row = build_comparison(
        build_session(series, build_machine(f"box-{uarch}", uarch=uarch, virtual=False), state=Session.State.DONE), kind
    )
    finding = build_finding(series, kind, **{"virtual": False, **fields})
    FindingVerdict.objects.get_or_create(
        finding=finding, uarch=row.session.machine.uarch, defaults={"verdict": kind, "comparison": row}
    )
    return finding


def test_mail_to_a_subscriber_is_written_once_and_leaves_without_moderation(ada: User, settings: Settings) -> None:
    settings.MAIL_ENABLED, settings.MAIL_SINK = True, ""
    build_uarch("zen3")
    subscribe(ada, {"uarch": "zen3"})
    finding = found()
    assert notify(finding_id=finding.pk) == 1
    assert notify(finding_id=finding.pk) == 0
    report = Report.objects.get(kind=Report.Kind.NOTICE)
    assert report.to == [ADA]
    assert "because you asked for what changed on zen3" in " ".join(report.body.split())
    assert send_delivery(delivery_id=report.delivery.pk)
    [sent] = mail.outbox
    assert sent.to == [ADA]
    assert not sent.cc


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({}, True),
        ({"uarch": "zen3"}, True),
        ({"uarch": "zen5"}, False),
        ({"claim": "regressed"}, True),
        ({"claim": "improved"}, False),
        ({"uarch": "zen3", "claim": "regressed", "benchmark": "mm-basic"}, True),
        ({"benchmark": "lmbench"}, False),
        ({"tree": "elsewhere"}, False),
        ({"path": "drivers/"}, False),
    ],
)
def test_subscription_is_told_of_what_it_asked_for(ada: User, wanted: dict[str, str], told: bool) -> None:
    build_uarch("zen5")
    build_case("null", "lmbench")
    build_tree("elsewhere")
    finding = found()
    assert matches(subscribe(ada, wanted)[0], finding) is told


def test_nobody_is_told_of_virtual_machines_of_what_was_before_or_after_the_end(ada: User) -> None:
    row, _ = subscribe(ada, {})
    assert notify(finding_id=found(virtual=True).pk) == 0
    late = found(uarch="zen5")
    Finding.objects.filter(pk=late.pk).update(created_at=clock.now() - timedelta(days=1))
    assert notify(finding_id=late.pk) == 0
    assert end_subscription(row)
    assert notify(finding_id=found(uarch="zen4").pk) == 0


def test_what_became_of_a_claim_is_told_to_whom_the_claim_was_told(ada: User) -> None:
    subscribe(ada, {})
    finding = found()
    notify(finding_id=finding.pk)
    User.objects.create_user("eve", "eve@example.org", "a long enough word")
    subscribe(User.objects.get(username="eve"), {})
    finding.advance(Finding.State.INVALID, because("the machine was throttled"))
    assert notify(finding_id=finding.pk) == 1
    last = Report.objects.filter(kind=Report.Kind.NOTICE).first()
    assert last is not None
    assert last.to == [ADA]
    assert "withdrawn: the machine was throttled" in " ".join(last.body.split())


def test_webhook_is_signed_as_standard_webhooks_are(ada: User, receiver: Receiver) -> None:
    row, _ = subscribe(ada, {"way": "webhook", "url": f"{receiver.url}/hook"})
    finding = found()
    assert notify(finding_id=finding.pk) == 1
    assert [send_call(call_id=pk) for pk in calls_to_send()] == [True]
    [(path, headers, body)] = receiver.got
    told = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
    key = base64.b64decode(hook_secret(row).removeprefix("whsec_"))
    wanted = base64.b64encode(hmac.digest(key, told, hashlib.sha256)).decode()
    assert path == "/hook"
    assert headers["webhook-signature"] == f"v1,{wanted}"
    event = json.loads(body)
    assert event["type"] == "finding.confirmed"
    assert event["data"]["finding"] == finding.pk
    assert event["data"]["verdicts"] == [{"uarch": "zen3", "verdict": "regressed"}]


def test_call_is_tried_again_with_the_same_id_until_it_is_taken(ada: User, receiver: Receiver) -> None:
    subscribe(ada, {"way": "webhook", "url": receiver.url})
    receiver.answers = [503, 302]
    notify(finding_id=found().pk)
    [pk] = calls_to_send()
    assert not send_call(call_id=pk)
    assert calls_to_send() == []
    for _ in range(2):
        HookCall.objects.update(not_before=None)
        send_call(call_id=pk)
    call = HookCall.objects.get()
    assert (call.state, call.tries, call.status) == ("sent", 3, 204)
    assert {headers["webhook-id"] for _, headers, _ in receiver.got} == {f"tidemark_{pk}"}
    assert {path for path, _, _ in receiver.got} == {"/"}


def test_receiver_that_is_gone_ends_its_subscription(ada: User, receiver: Receiver) -> None:
    row, _ = subscribe(ada, {"way": "webhook", "url": receiver.url})
    receiver.answers = [410]
    notify(finding_id=found().pk)
    assert not send_call(call_id=calls_to_send()[0])
    row.refresh_from_db()
    assert row.ended_at is not None
    assert HookCall.objects.get().state == HookCall.State.FAILED


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "169.254.169.254", "10.1.2.3", "[::ffff:127.0.0.1]", "localhost"]
)
def test_webhook_reaches_no_private_network(ada: User, host: str, settings: Settings) -> None:
    settings.HOOK_NETWORKS = ()
    subscribe(ada, {"way": "webhook", "url": f"http://{host}:9/hook"})
    notify(finding_id=found().pk)
    assert not send_call(call_id=calls_to_send()[0])
    call = HookCall.objects.get()
    assert call.state == HookCall.State.FAILED
    assert "TIDEMARK_HOOK_NETWORKS" in call.reason


def test_name_that_stands_for_a_private_address_too_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [(2, 1, 6, "", ("93.184.216.34", 443)), (2, 1, 6, "", ("192.168.0.7", 443))]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_args, **_more: both)
    with pytest.raises(DomainError, match="private network"):
        allowed_address("https://hooks.example.org/x")
    monkeypatch.setattr("socket.getaddrinfo", lambda *_args, **_more: both[:1])
    assert allowed_address("https://hooks.example.org/x") == "93.184.216.34"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"uarch": "zen9"}, "uarch: there is no zen9"),
        ({"way": "pigeon"}, "way: there is no pigeon; known: mail, webhook"),
        ({"way": "webhook"}, "url: an address"),
        ({"way": "webhook", "url": "file:///etc/passwd"}, "url: an address"),
        ({"way": "webhook", "url": "https://user:word@x.org/"}, "url: holds a user"),
        ({"way": "mail", "url": "https://x.org/"}, "url: only a webhook"),
        ({"pace": "weekly"}, "pace: a weekly digest is a mail about one tree"),
        ({"path": "mm/\n"}, "path:"),
    ],
)
def test_wrong_subscription_is_refused_by_field(ada: User, wanted: dict[str, str], said: str) -> None:
    with pytest.raises(DomainError) as refused:
        subscribe(ada, wanted)
    assert refused.value.message.startswith(said)
    assert not Subscription.objects.exists()


def test_same_wish_is_one_subscription_and_without_an_address_there_is_none(ada: User) -> None:
    assert subscribe(ada, {})[0] == subscribe(ada, {"way": "mail"})[0]
    with pytest.raises(DomainError, match="no mail address"):
        subscribe(User.objects.create_user("bob"), {})


def test_digest_tells_of_the_last_whole_week_once(ada: User, settings: Settings) -> None:
    settings.MAIL_ENABLED = True
    finding = found()
    tree = finding.series.base.tree if finding.series and finding.series.base else None
    assert tree is not None
    row, _ = subscribe(ada, {"pace": "weekly", "tree": tree.name})
    assert write_digests() == 0
    Subscription.objects.filter(pk=row.pk).update(created_at=clock.now() - timedelta(days=30))
    monday = clock.now() - timedelta(days=clock.now().weekday())
    Finding.objects.filter(pk=finding.pk).update(state_since=monday - timedelta(days=3))
    assert write_digests() == 1
    assert write_digests() == 0
    report = Report.objects.get(kind=Report.Kind.DIGEST)
    assert report.to == [ADA]
    assert report.finding is None
    OptOut.objects.create(address=ADA)
    assert not send_delivery(delivery_id=report.delivery.pk)
    assert Delivery.objects.get().state == Delivery.State.FAILED


def test_sweep_tells_of_each_step_once_however_long_it_was_away(ada: User, settings: Settings) -> None:
    settings.PATCHWORK_URL, settings.PATCHWORK_TOKEN = "https://patchwork.example.org", "secret-word"
    assert tell_what_moved() == 0
    subscribe(ada, {})
    finding = found()
    with time_machine.travel(clock.now() + timedelta(days=9), tick=False):
        assert tell_what_moved() == 1
        assert tell_what_moved() == 0
        sent = Report.objects.create(
            finding=finding, first_of=finding, state="approved", subject="Re: x", body="b", to=[ADA], in_reply_to="m@x"
        )
        sent.advance(Report.State.SENT, because("it left"))
        assert tell_what_moved() == 1
        assert HookCall.objects.get().target == HookCall.Target.PATCHWORK


def test_step_that_is_written_down_late_is_told_all_the_same(ada: User) -> None:
    tell_what_moved()
    subscribe(ada, {})
    finding = found()
    late = Transition.objects.filter(subject="finding", subject_id=finding.pk).latest("pk")
    Transition.objects.filter(pk=late.pk).update(subject="build")
    other = found(uarch="zen5")
    assert tell_what_moved() == 1
    Transition.objects.filter(pk=late.pk).update(subject="finding")
    assert tell_what_moved() == 1
    assert {report.finding_id for report in Report.objects.filter(kind=Report.Kind.NOTICE)} == {finding.pk, other.pk}


def test_check_goes_to_patchwork_once_its_mail_has_left(receiver: Receiver, settings: Settings) -> None:
    settings.PATCHWORK_URL, settings.PATCHWORK_TOKEN = receiver.url, "secret-word"
    finding = found()
    assert finding.series is not None
    last = finding.series.patches.order_by("-index").first()
    assert last is not None
    receiver.documents["/api/patches/?msgid="] = [{"id": 77}]
    assert notify(finding_id=finding.pk) == 0
    Report.objects.create(
        finding=finding,
        first_of=finding,
        state=Report.State.SENT,
        subject="Re: x",
        body="b",
        to=[ADA],
        in_reply_to="m@x",
    )
    assert notify(finding_id=finding.pk) == 1
    assert send_call(call_id=calls_to_send()[0])
    [(path, headers, body)] = receiver.got
    assert path == "/api/patches/77/checks/"
    assert headers["authorization"] == "Token secret-word"
    assert json.loads(body)["state"] == "fail"
    assert "secret-word" not in json.dumps(list(HookCall.objects.values()), default=str)


def test_notice_of_a_claim_stays_where_the_claim_does_not_stand_any_more(ada: User, settings: Settings) -> None:
    settings.MAIL_ENABLED, settings.MAIL_SINK = True, ""
    subscribe(ada, {})
    finding = found()
    notify(finding_id=finding.pk)
    finding.advance(Finding.State.INVALID, because("noise"))
    assert not send_delivery(delivery_id=Delivery.objects.get().pk)
    assert mail.outbox == []


def test_what_boots_say_of_virtual_machines_counts(ada: User) -> None:
    subscribe(ada, {})
    finding = found()
    Machine.objects.update(virtual=True)
    assert notify(finding_id=finding.pk) == 0
