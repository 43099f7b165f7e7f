"""A private postfix: its configuration, queue and mailboxes in one folder, its port on loopback, gone afterwards."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
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
_SECONDS = 20.0


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


def why_not() -> str:
    if os.geteuid() != 0:
        return "postfix is started by root alone"
    return (
        ""
        if shutil.which("postfix", path=f"{os.environ['PATH']}:/usr/sbin")
        else "no postfix (scripts/setup.sh --test)"
    )


@contextmanager
def postfix(folder: Path, *mailboxes: str) -> Iterator[Postfix]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name in ("etc", "spool", "data", "mail"):
        (folder / name).mkdir(parents=True)
    shutil.chown(folder / "data", "postfix", "postfix")
    shutil.chown(folder / "mail", 65534, 65534)
    etc = folder / "etc"
    (etc / "main.cf").write_text(_MAIN.format(folder=folder), encoding="utf-8")
    (etc / "master.cf").write_text(_MASTER.format(port=port), encoding="utf-8")
    (etc / "mailboxes").write_text("".join(f"{one} {one}/\n" for one in mailboxes), encoding="utf-8")
    command = ["/usr/sbin/postfix", "-c", str(etc)]
    started = subprocess.run([*command, "start"], capture_output=True, text=True, check=False)
    try:
        assert started.returncode == 0, started.stderr
        yield Postfix(folder, port)
    finally:
        subprocess.run([*command, "stop"], capture_output=True, check=False)
