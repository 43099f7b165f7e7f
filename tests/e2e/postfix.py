"""A private postfix: its configuration, queue and mailboxes in one folder, its port on loopback, gone afterwards."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_MAIN = """\
compatibility_level = 3.6
queue_directory = {folder}/spool
data_directory = {folder}/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
maillog_file = {folder}/log
maillog_file_prefixes = {folder}
multi_instance_name =
myhostname = mx.example.org
mydestination =
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mynetworks = 127.0.0.0/8
smtpd_reject_unlisted_recipient = no
virtual_mailbox_domains = example.org, perf.example.org
virtual_mailbox_base = {folder}/mail
virtual_mailbox_maps = texthash:{folder}/etc/mailboxes
virtual_minimum_uid = 100
virtual_uid_maps = static:65534
virtual_gid_maps = static:65534
recipient_delimiter = +
alias_maps =
local_recipient_maps =
smtpd_peername_lookup = no
transport_maps = texthash:{folder}/etc/transport
tidemark_destination_recipient_limit = 1
disable_dns_lookups = yes
biff = no
"""
_MASTER = """\
127.0.0.1:{port} inet n - n - - smtpd
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
error unix - - n - - error
retry unix - - n - - error
proxymap unix - - n - - proxymap
virtual unix - n n - - virtual
anvil unix - - n - 1 anvil
postlog unix-dgram n - n - 1 postlogd
"""
_GUIDE = Path(__file__).resolve().parents[2] / "docs" / "operations" / "mail.md"
# What is handed to the service, as the guide for operators says it.
_PIPE = re.compile(r"(?:^    (tidemark  unix .*)\n)(?:^    (  .*)\n)(?:^    (  .*)\n)", re.MULTILINE)
_SECONDS = 60.0
NOBODY = "nobody"
_HAND_OVER = """\
box=$(mktemp -d {folder}/piped/XXXXXX) && cat >"$box/mail" && : >"$box/ready" || exit 75
while [ ! -s "$box/status" ]; do sleep 0.1; done
exit "$(cat "$box/status")"
"""


@dataclass(frozen=True)
class Postfix:
    folder: Path
    port: int

    def mails(self, address: str, *, wanted: int = 1) -> list[bytes]:
        """What lies in a mailbox, oldest first, once there are `wanted`; and what comes within a moment more."""
        box = self.folder / "mail" / address / "new"
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end and (not box.is_dir() or len(list(box.iterdir())) < wanted):
            time.sleep(0.05)
        time.sleep(0.3)
        found = sorted(box.iterdir(), key=lambda path: path.stat().st_mtime_ns) if box.is_dir() else []
        return [path.read_bytes() for path in found]

    def said(self) -> str:
        """The end of its log, and what the command said that it pipes mails to."""
        logs = [self.folder / name for name in ("log", "piped.log")]
        return "\n".join(log.read_text(encoding="utf-8", errors="replace")[-3000:] for log in logs if log.exists())


def why_not() -> str:
    if os.geteuid() != 0:
        return "postfix is started by root alone"
    return (
        ""
        if shutil.which("postfix", path=f"{os.environ['PATH']}:/usr/sbin")
        else "no postfix (scripts/setup.sh --test)"
    )


@contextmanager
def postfix(folder: Path, *mailboxes: str, handed_in: str, env_file: Path) -> Iterator[Postfix]:
    """Mails to the address `handed_in` are given to the service of this checkout, with the settings of `env_file`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name in ("etc", "spool", "data", "mail"):
        (folder / name).mkdir(parents=True)
    shutil.chown(folder / "data", "postfix", "postfix")
    shutil.chown(folder / "mail", 65534, 65534)
    etc = folder / "etc"
    (etc / "main.cf").write_text(_MAIN.format(folder=folder), encoding="utf-8")
    lines, handing_in = _documented(env_file)
    (etc / "master.cf").write_text(_MASTER.format(port=port) + lines, encoding="utf-8")
    (etc / "transport").write_text(f"{handed_in} tidemark:\n", encoding="utf-8")
    (etc / "mailboxes").write_text("".join(f"{one} {one}/\n" for one in mailboxes), encoding="utf-8")
    command = ["/usr/sbin/postfix", "-c", str(etc)]
    started = subprocess.run([*command, "start"], capture_output=True, text=True, check=False)
    try:
        assert started.returncode == 0, started.stderr
        with _service(folder, handing_in):
            yield Postfix(folder, port)
    finally:
        subprocess.run([*command, "stop"], capture_output=True, check=False)


@contextmanager
def _service(folder: Path, command: Sequence[str]) -> Iterator[None]:
    """Runs the guide's command for each mail that postfix pipes, without environment, as whoever runs the tests:
    postfix starts nothing as root, and others may have no way into this checkout.
    """
    box, over = folder / "piped", threading.Event()
    box.mkdir()
    shutil.chown(box, NOBODY)

    def serve() -> None:
        while not over.wait(0.1):
            for ready in box.glob("*/ready"):
                with (ready.parent / "mail").open("rb") as mail:
                    done = subprocess.run(command, stdin=mail, env={}, cwd="/", capture_output=True, check=False)
                (folder / "piped.log").write_bytes(done.stdout + done.stderr)
                ready.unlink()
                (ready.parent / "status").write_text(f"{done.returncode}\n", encoding="ascii")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _documented(env_file: Path) -> tuple[str, list[str]]:
    """The lines of master.cf, and the command in them, as the guide for operators has both."""
    found = _PIPE.search(_GUIDE.read_text(encoding="utf-8"))
    assert found, "the guide says no more how mails are handed in"
    service, flags, program = found.groups()
    command = program.strip().removeprefix("argv=").replace("/srv/tidemark/.venv/bin/python", sys.executable)
    command = command.replace("/srv/tidemark", str(_GUIDE.parents[2])).replace("/etc/tidemark.env", str(env_file))
    folder = env_file.parent
    (folder / "hand-over").write_text(_HAND_OVER.format(folder=folder), encoding="ascii")
    lines = [service, flags.replace("user=tidemark", f"user={NOBODY}"), f"  argv=/bin/sh {folder}/hand-over"]
    return "\n".join(lines) + "\n", shlex.split(command)
