"""A mail as it leaves: the same bytes at every try, every field on its own line, and signed by the site's keys."""

import base64
import subprocess
from email import message_from_bytes
from email.header import decode_header, make_header
from pathlib import Path

import dkim
import pytest
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from server.core import clock
from server.core.errors import DomainError
from server.reports.models import Delivery, Report
from server.reports.outbox import send_delivery
from server.reports.sending.headers import build_mail, envelope_sender, is_envelope_sender
from server.reports.sending.signature import sign, signing_keys, told_by_dns
from tests.builders import build_finding, build_series
from tests.reports.conftest import Server
from tests.reports.test_outbox import queued

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def open_site(settings: Settings) -> None:
    settings.MAIL_ENABLED = True
    settings.MAIL_FROM = "Tidemark <tidemark@perf.example.org>"
    settings.MAIL_SINK = ""
    settings.DKIM_KEYS = []


def head_of(**fields: object) -> bytes:
    told = {"subject": "Re: [PATCH] x", "body": "Text.\n", "to": ["ada@example.org"], "cc": []}
    report = Report.objects.create(
        kind=str(fields.pop("kind", Report.Kind.SERIES)),
        finding=build_finding(build_series()),
        key=str(fields.pop("key", "k")),
        state=Report.State.APPROVED,
        **{**told, **fields},
    )
    delivery = Delivery.objects.create(
        report=report, message_id=f"tidemark.{report.pk}.ab@perf.example.org", state="queued"
    )
    return build_mail(delivery, report.to, report.cc).raw


def test_fields_that_hold_line_ends_begin_no_header() -> None:
    evil = "x\r\nBcc: all@example.org\n\nbody"
    raw = head_of(
        subject=evil,
        to=[f"{evil} <ada@example.org>"],
        cc=[f"bob@example.org{evil}"],
        in_reply_to=f"a@b>{evil}",
        references=[evil, "c@d"],
    )
    mail = message_from_bytes(raw)
    assert "bcc" not in raw.decode().lower().replace("bcc: all", "", 4).split("\n\n")[0].split("\n")
    assert mail["Bcc"] is None
    assert mail.get_payload() == "Text.\n"
    assert all(":" in line or line.startswith(" ") for line in raw.decode().partition("\n\n")[0].split("\n"))


def test_long_fields_are_folded_and_read_back_whole() -> None:
    references = [f"{'x' * 40}.{number}@kernel.example.org" for number in range(12)]
    cc = [f"person.number{number}@example.org" for number in range(19)]
    raw = head_of(subject="Re: [PATCH v3 04/28] " + "mm: words " * 16, references=references, in_reply_to="y@z", cc=cc)
    head = raw.partition(b"\n\n")[0]
    assert max(map(len, head.split(b"\n"))) <= 78
    mail = message_from_bytes(raw)
    assert mail["References"].split() == [f"<{one}>" for one in (*references, "y@z")]
    assert " ".join(mail["Cc"].split()) == ", ".join(cc)
    assert " ".join(mail["Subject"].split()) == ("Re: [PATCH v3 04/28] " + "mm: words " * 16).strip()


def test_names_of_people_are_encoded_and_their_addresses_kept(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = queued()
    monkeypatch.setattr("server.reports.renewal.other_text", lambda _report: None)
    Report.objects.update(to=["Zoë Müller <zoe@example.org>"], cc=['"Roe, Bob" <bob@example.org>'], subject="Re: Größe")
    assert send_delivery(delivery_id=delivery.pk)
    assert server.recipients == ["zoe@example.org", "bob@example.org"]
    mail = message_from_bytes(server.accepted[0])
    assert server.accepted[0].isascii()
    assert str(make_header(decode_header(mail["To"]))) == "Zoë Müller <zoe@example.org>"
    assert mail["Cc"] == '"Roe, Bob" <bob@example.org>'
    assert str(make_header(decode_header(mail["Subject"]))) == "Re: Größe"


def test_digest_answers_nothing_and_an_answer_says_so() -> None:
    digest, answer = (message_from_bytes(head_of(kind=kind, key=kind)) for kind in ("digest", "answer"))
    assert digest["In-Reply-To"] is None
    assert digest["References"] is None
    assert (digest["Auto-Submitted"], answer["Auto-Submitted"]) == ("auto-generated", "auto-replied")
    assert digest["List-Id"] == "Tidemark reports <reports.perf.example.org>"
    assert digest["Precedence"] is None
    assert digest["List-Unsubscribe"] is None


def test_answers_go_where_the_site_wants_them(settings: Settings) -> None:
    settings.MAIL_REPLY_TO = "answers@perf.example.org"
    assert message_from_bytes(head_of())["Reply-To"] == "answers@perf.example.org"


def test_sender_of_the_envelope_names_the_delivery_and_cannot_be_guessed(settings: Settings, server: Server) -> None:
    settings.MAIL_BOUNCES = "bounces@perf.example.org"
    one, other = queued(), queued()
    sender = envelope_sender(one)
    assert sender.startswith(f"bounces+{one.pk}.")
    assert is_envelope_sender(sender.upper(), one)
    assert not is_envelope_sender(sender, other)
    assert not is_envelope_sender(f"bounces+{one.pk}.000000000000@perf.example.org", one)


def rsa(folder: Path, bits: int = 2048) -> Path:
    return key_file(folder / f"rsa{bits}.pem", "genpkey", "-algorithm", "RSA", "-pkeyopt", f"rsa_keygen_bits:{bits}")


def key_file(path: Path, *command: str) -> Path:
    subprocess.run(["openssl", *command, "-out", str(path)], check=True, capture_output=True)
    path.chmod(0o600)
    return path


def dns() -> dict[bytes, bytes]:
    return {f"{key.name}.".encode(): key.record.encode() for key in signing_keys()}


def valid(raw: bytes, number: int = 0) -> bool:
    records = dns()
    try:
        return bool(dkim.DKIM(raw).verify(idx=number, dnsfunc=lambda name, timeout=5: records.get(name)))  # noqa: ARG005
    except dkim.ValidationError:
        return False


def test_mail_is_signed_by_each_key_and_nobody_can_change_it(
    settings: Settings, server: Server, tmp_path: Path
) -> None:
    ed25519 = key_file(tmp_path / "ed.pem", "genpkey", "-algorithm", "ed25519")
    settings.DKIM_KEYS = [f"r2026={rsa(tmp_path)}", f"e2026={ed25519}"]
    assert send_delivery(delivery_id=queued().pk)
    raw = server.accepted[0]
    assert valid(raw, 0)
    assert valid(raw, 1)
    signed = message_from_bytes(raw).get_all("DKIM-Signature", [])
    assert ["a=rsa-sha256" in signed[0], "a=ed25519-sha256" in signed[1]] == [True, True]
    for one in signed:
        names = "".join(one.split()).partition("h=")[2].partition(";")[0].split(":")
        assert names.count("from") == 2
        assert {"to", "cc", "subject", "date", "message-id", "in-reply-to", "references"} < set(names)
    for changed in (
        raw.replace(b"Subject: Re:", b"Subject: Fwd:"),
        raw.replace(b"ada@example.org", b"eve@example.org", 1),
        b"From: Eve <eve@example.org>\r\n" + raw,
        raw.replace(b"\r\n\r\n", b"\r\n\r\nNot this: ", 1),
    ):
        assert changed != raw
        assert not valid(changed)


def test_signature_is_the_same_at_every_try(settings: Settings, tmp_path: Path) -> None:
    settings.DKIM_KEYS = [f"s={rsa(tmp_path)}"]
    raw, when = head_of(), clock.now()
    assert sign(raw, when) == sign(raw, when)
    assert f"t={int(when.timestamp())};".encode() in sign(raw, when)


def test_key_as_other_programs_write_it_is_read(settings: Settings, tmp_path: Path) -> None:
    plain = tmp_path / "seed"
    plain.write_bytes(base64.b64encode(bytes(range(32))) + b"\n")
    plain.chmod(0o600)
    old = key_file(tmp_path / "pkcs1.pem", "rsa", "-in", str(rsa(tmp_path)), "-traditional")
    settings.DKIM_KEYS = [f"a={plain}", f"b={old}"]
    raw = sign(head_of(), clock.now())
    assert valid(raw, 0)
    assert valid(raw, 1)


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ("open", "can be read by every user of this host"),
        ("gone", "No such file"),
        ("short", "an RSA key of 1024 bits"),
        ("text", "is neither PEM nor an Ed25519 key"),
        ("public", "holds a public key, not a private key"),
        ("shape", "is not SELECTOR=FILE"),
    ],
)
def test_key_that_cannot_be_used_holds_the_mails_and_says_why(
    trouble: str, told: str, settings: Settings, tmp_path: Path, server: Server
) -> None:
    path = rsa(tmp_path, 1024 if trouble == "short" else 2048)
    if trouble == "open":
        path.chmod(0o644)
    elif trouble == "gone":
        path.unlink()
    elif trouble == "text":
        path.write_text("no key at all!\n", encoding="utf-8")
    elif trouble == "public":
        path = key_file(tmp_path / "public.pem", "rsa", "-in", str(path), "-pubout")
    settings.DKIM_KEYS = [str(path) if trouble == "shape" else f"s={path}"]
    delivery = queued()
    assert not send_delivery(delivery_id=delivery.pk)
    delivery.refresh_from_db()
    assert delivery.state == Delivery.State.QUEUED
    assert told in delivery.reason
    assert server.accepted == []
    assert [told in str(problem) for problem in run_checks() if problem.id == "reports.W001"] == [True]


def test_check_names_a_domain_that_receivers_do_not_take_for_the_sender_s(settings: Settings, tmp_path: Path) -> None:
    settings.DKIM_KEYS, settings.DKIM_DOMAIN = [f"s={rsa(tmp_path)}"], "other.example.net"
    assert [problem.id for problem in run_checks() if str(problem.id).startswith("reports.")] == ["reports.W002"]
    settings.DKIM_DOMAIN = "example.org"
    assert [problem.id for problem in run_checks() if str(problem.id).startswith("reports.")] == []


def test_record_in_dns_is_compared_with_the_key(settings: Settings, tmp_path: Path) -> None:
    settings.DKIM_KEYS = [f"s={rsa(tmp_path)}"]
    (key,) = signing_keys()
    assert told_by_dns(key, lambda _name: key.record.encode()) == ""
    assert "there is no TXT record s._domainkey.perf.example.org" in told_by_dns(key, lambda _name: None)
    assert "revoked" in told_by_dns(key, lambda _name: b"v=DKIM1; p=")
    other = tmp_path / "other"
    other.mkdir()
    settings.DKIM_KEYS = [f"s={rsa(other)}"]
    (another,) = signing_keys()
    assert "another key than the file" in told_by_dns(key, lambda _name: another.record.encode())


def test_command_prints_the_records_and_fails_where_dns_tells_others(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.DKIM_KEYS = [f"s={rsa(tmp_path)}"]
    (key,) = signing_keys()
    monkeypatch.setattr("server.reports.sending.signature.look_up_key", lambda _name: key.record.encode())
    call_command("dkim")
    assert f"s._domainkey.perf.example.org. TXT {key.record}" in capsys.readouterr().out
    monkeypatch.setattr("server.reports.sending.signature.look_up_key", lambda _name: None)
    with pytest.raises(CommandError, match="there is no TXT record"):
        call_command("dkim")
    settings.DKIM_KEYS = []
    with pytest.raises(CommandError, match="TIDEMARK_DKIM_KEYS names no key"):
        call_command("dkim")


def test_key_that_is_put_right_lets_the_mail_go(settings: Settings, tmp_path: Path, server: Server) -> None:
    settings.DKIM_KEYS = [f"s={tmp_path / 'later.pem'}"]
    delivery = queued()
    assert not send_delivery(delivery_id=delivery.pk)
    with pytest.raises(DomainError):
        signing_keys()
    rsa(tmp_path).rename(tmp_path / "later.pem")
    Delivery.objects.update(not_before=None)
    assert send_delivery(delivery_id=delivery.pk)
    assert valid(server.accepted[0])
