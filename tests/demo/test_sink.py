import smtplib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.sink import Store
from demo.world import ROOT

MAIL = (
    "From: a@example.org\r\nTo: b@example.org\r\nMessage-ID: <one@example.org>\r\nIn-Reply-To: <root@x>\r\n"
    "\r\nHello.\r\n"
)


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def sink(port: int, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "demo.sink", "--port", str(port), "--dir", str(tmp_path / "mails")]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "listening" in process.stdout.readline()
    yield process
    process.terminate()
    process.wait()
    process.stdout.close()


def send(port: int, text: str) -> None:
    with smtplib.SMTP("127.0.0.1", port, timeout=20) as client:
        client.sendmail("tidemark@example.org", ["b@example.org", "c@example.org"], text)


@pytest.mark.usefixtures("sink")
def test_accepted_mail_is_on_disk(port: int, tmp_path: Path) -> None:
    send(port, MAIL)
    (mail,) = Store(tmp_path / "mails").mails()
    assert (mail.message_id, mail.in_reply_to, mail.arrivals) == ("<one@example.org>", "<root@x>", 1)
    assert mail.recipients == ("b@example.org", "c@example.org")
    assert "Hello." in mail.text
    assert not list((tmp_path / "mails").glob("*.part"))


@pytest.mark.usefixtures("sink")
def test_mail_handed_over_twice_is_one_mail_and_both_times_are_told(port: int, tmp_path: Path) -> None:
    send(port, MAIL)
    send(port, MAIL)
    send(port, MAIL.replace("<one@", "<two@"))
    mails = Store(tmp_path / "mails").mails()
    assert [(mail.message_id, mail.arrivals) for mail in mails] == [("<one@example.org>", 2), ("<two@example.org>", 1)]


@pytest.mark.usefixtures("sink")
def test_mail_that_cannot_be_stored_is_left_with_its_sender(port: int, tmp_path: Path) -> None:
    (tmp_path / "mails").write_text("a file where the directory should be")
    with pytest.raises(smtplib.SMTPDataError) as error:
        send(port, MAIL)
    assert error.value.smtp_code == 451


def test_sink_ends_when_it_is_asked_to(sink: "subprocess.Popen[str]") -> None:
    sink.terminate()
    assert sink.wait(timeout=20) == 0


@pytest.mark.usefixtures("sink")
def test_second_sink_on_the_same_port_says_so(port: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "demo.sink", "--port", str(port), "--dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "address already in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_mail_yet_is_no_fault(tmp_path: Path) -> None:
    assert Store(tmp_path / "nowhere").mails() == []
