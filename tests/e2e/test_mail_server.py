"""Reports through a real mail server: postfix takes them and writes back; public-inbox and b4 read the thread."""

import base64
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from urllib.request import urlopen

import dkim
import pytest
from django.conf import settings as settings_of_run
from pytest_django.fixtures import Settings

from bench.archive.inbox import Inbox
from server.reports.models import Bounce, Delivery, Report, RestingAddress, ReturnedMail
from server.reports.moderation import approve_report
from server.reports.outbox import queue_delivery, send_delivery
from server.reports.sending.signature import signing_keys
from server.reports.writing import compose_report
from server.sources.models import Message
from tests.e2e.postfix import Postfix, postfix, why_not
from tests.found_scenarios import split_finding
from tests.web.conftest import database_url
from workers.reports import sweep

pytestmark = [
    pytest.mark.real(minutes=1),
    pytest.mark.django_db,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "it is there"),
]
_LONGEST_SECONDS = 120.0
SENDER, BOUNCES, LIST = "tidemark@perf.example.org", "bounces@perf.example.org", "linux-mm@example.org"
PATCH = """\
From: Ada Author <ada@example.org>
To: linux-mm@example.org
Subject: [PATCH] mm: Clear pages twice
Message-ID: <{root}>
Date: Sun, 29 Nov 2026 10:00:00 +0000

It is safer.

Signed-off-by: Ada Author <ada@example.org>
---
 mm/x.c | 1 +
 1 file changed, 1 insertion(+)

diff --git a/mm/x.c b/mm/x.c
index 1111111..2222222 100644
--- a/mm/x.c
+++ b/mm/x.c
@@ -1 +1,2 @@
 clear();
+clear();
--
2.50.0
"""


@pytest.fixture(scope="module")
def mail_server() -> Iterator[Postfix]:
    # Not in pytest's own folder: postfix's sockets want a short path, and its users a way in.
    folder = Path(tempfile.mkdtemp(prefix="tidemark-mail-"))
    folder.chmod(0o755)
    env_file = folder / "env"
    env_file.touch()
    try:
        with postfix(folder, "ada@example.org", LIST, handed_in=BOUNCES, env_file=env_file) as server:
            yield server
    finally:
        shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def site(settings: Settings, mail_server: Postfix, tmp_path: Path) -> None:
    key = tmp_path / "dkim.pem"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    key.chmod(0o600)
    settings.MAIL_ENABLED, settings.MAIL_FROM, settings.MAIL_BOUNCES = True, f"Tidemark <{SENDER}>", BOUNCES
    # Machines of the tests are virtual: their mails go to the sink, which is this server too.
    settings.MAIL_SINK = f"127.0.0.1:{mail_server.port}"
    settings.DKIM_KEYS = [f"s2026={key}"]
    settings.EMAIL_BACKEND = "server.reports.sending.wire.MailWire"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", mail_server.port


def queued_report() -> Delivery:
    """Of a split of several machines, written by the composer."""
    report = compose_report(finding_id=split_finding().pk)
    assert report is not None
    assert report.body
    Report.objects.filter(pk=report.pk).update(to=["ada@example.org"], cc=[LIST])
    return approve_report(report_id=report.pk).delivery


def test_report_arrives_once_signed_and_in_the_thread(mail_server: Postfix, tmp_path: Path) -> None:
    delivery = queued_report()
    assert send_delivery(delivery_id=delivery.pk)
    assert not send_delivery(delivery_id=delivery.pk)
    # Postfix delivers in parallel: what lies in the box was the first.
    assert len(mail_server.mails(LIST)) == 1
    follow_up = _second_mail(delivery.report)
    assert send_delivery(delivery_id=follow_up.pk)
    mails = mail_server.mails(LIST, wanted=2)
    assert [message_from_bytes(mail)["Message-ID"] for mail in mails] == [
        f"<{delivery.message_id}>",
        f"<{follow_up.message_id}>",
    ]
    assert len(mail_server.mails("ada@example.org", wanted=2)) == 2
    arrived = message_from_bytes(mails[0])
    assert arrived["Return-Path"].startswith(f"<bounces+{delivery.pk}.")
    assert str(arrived.get_payload()).rstrip() == delivery.report.body.rstrip()
    for mail in mails:
        _check_signature(mail, tmp_path)
    series = delivery.report.series
    assert series is not None
    root = series.root_message_id
    _check_thread([PATCH.format(root=root).encode(), *mails], root, tmp_path)


def _second_mail(first: Report) -> Delivery:
    report = Report.objects.create(
        kind=Report.Kind.ANSWER, finding=first.finding, key="answer", answers=first, released=True,
        state=Report.State.APPROVED, subject=first.subject, body="The same again.\n", to=first.to, cc=first.cc,
        in_reply_to=first.delivery.message_id, references=[*first.references, first.delivery.message_id],
    )  # fmt: skip
    return queue_delivery(report=report)


def _check_signature(mail: bytes, folder: Path) -> None:
    """By dkimpy with our record as DNS; and step by step after RFC 6376, by openssl."""
    (key,) = signing_keys()
    assert dkim.verify(mail, dnsfunc=lambda _name, timeout=5: key.record.encode())  # noqa: ARG005
    head, _, body = mail.partition(b"\n\n")
    fields = [field for field in re.split(rb"\n(?![ \t])", head) if not field.startswith(b"From ")]
    own = next(field for field in fields if field.lower().startswith(b"dkim-signature:"))
    tags = dict(tag.strip().split("=", 1) for tag in own.decode().partition(":")[2].split(";"))
    whole = (body.rstrip(b"\n") + b"\n").replace(b"\n", b"\r\n")
    assert base64.b64encode(hashlib.sha256(whole).digest()).decode() == "".join(tags["bh"].split())
    left = {name: [one for one in fields if one.lower().startswith(name + b":")] for name in _names(tags["h"])}
    chosen = [left[name].pop() for name in _names(tags["h"]) if left[name]]
    unsigned = re.sub(rb"(\bb=)[^;]*$", rb"\1", own)
    signed = b"\r\n".join([*map(_relaxed, chosen), _relaxed(unsigned)])
    (folder / "signed").write_bytes(signed)
    (folder / "signature").write_bytes(base64.b64decode("".join(tags["b"].split())))
    (folder / "public.der").write_bytes(base64.b64decode(key.public))
    command = ["openssl", "dgst", "-sha256", "-verify", "public.der", "-keyform", "DER", "-signature", "signature"]
    done = subprocess.run([*command, "signed"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "Verified OK", done


def _names(told: str) -> list[bytes]:
    return [name.strip().lower().encode() for name in told.split(":")]


def _relaxed(field: bytes) -> bytes:
    name, _, value = field.partition(b":")
    return name.strip().lower() + b":" + b" ".join(value.split())


def _check_thread(mails: list[bytes], root: str, folder: Path) -> None:
    inbox = Inbox.create(folder / "inbox", epoch_bytes=10**9)
    inbox.add(mails)
    with inbox.served(), urlopen(f"{inbox.url}/{root}/t.mbox.gz") as answer:  # noqa: S310 (loopback)
        box = gzip.decompress(answer.read())
    assert box.count(b"\nMessage-ID: <tidemark.") == 2
    b4 = os.environ.get("B4") or shutil.which("b4")
    if b4 is None:
        return
    (folder / "thread.mbox").write_bytes(box)
    home = {"HOME": str(folder), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
    command = [b4, "--offline-mode", "am", "-m", str(folder / "thread.mbox"), "-o", str(folder / "am"), root]
    done = subprocess.run(command, env=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Analyzing 3 messages in the thread" in done.stderr
    assert "Total patches: 1" in done.stderr
    (made,) = (folder / "am").glob("*.mbx")
    assert b"tidemark." not in made.read_bytes(), "b4 takes no report for a patch"


@pytest.fixture
def handed_in(mail_server: Postfix) -> None:
    """The command that postfix runs has the database of the test."""
    values = {
        "TIDEMARK_SECRET_KEY": settings_of_run.SECRET_KEY,
        "TIDEMARK_DATABASE_URL": database_url(),
        "TIDEMARK_REDIS_URL": settings_of_run.CELERY_BROKER_URL,
        "TIDEMARK_STATE_DIR": str(mail_server.folder / "state"),
    }
    lines = "".join(f"{name}={value}\n" for name, value in values.items())
    (mail_server.folder / "env").write_text(lines, encoding="utf-8")


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("handed_in")
def test_unknown_user_comes_back_and_is_written_down(mail_server: Postfix) -> None:
    delivery = queued_report()
    Report.objects.filter(pk=delivery.report_id).update(to=["nobody@example.org"])
    assert send_delivery(delivery_id=delivery.pk)
    end = time.monotonic() + _LONGEST_SECONDS
    while not Message.objects.filter(mailing_list__name="imported").exists():
        assert time.monotonic() < end, f"postfix has handed nothing in:\n{mail_server.said()}"
        time.sleep(0.2)
    sweep()
    assert [row.meaning for row in ReturnedMail.objects.all()] == ["bounce"]
    bounce = Bounce.objects.get()
    assert (bounce.delivery_id, bounce.address, bounce.status) == (delivery.pk, "nobody@example.org", "5.1.1")
    assert RestingAddress.objects.get().address == "nobody@example.org"
