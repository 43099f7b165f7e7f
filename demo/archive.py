"""A list archive on loopback: public-inbox, with its configuration and home below one directory."""

import email
import email.policy
import os
from collections.abc import Iterable
from email.utils import formatdate
from pathlib import Path

from demo.postings import LIST_ADDRESS, Posting
from demo.processes import IDENTITY, git, run

NAME = "demo-list"
_MAILS = Path(__file__).resolve().parent / "mails"


class Archive:
    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder.resolve()
        self.port = port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{NAME}"

    @property
    def epoch(self) -> Path:
        return self.folder / NAME / "git" / "0.git"

    def environment(self) -> dict[str, str]:
        """What keeps public-inbox out of the user's home: its configuration, and the cache of its compiled parts."""
        home = self.folder / "home"
        return {
            "HOME": str(home),
            "PI_CONFIG": str(self.folder / "config"),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "ORIGINAL_RECIPIENT": LIST_ADDRESS,
        }

    def server(self) -> tuple[str, ...]:
        """The command that serves it, in the foreground."""
        return ("public-inbox-httpd", "-W0", "-l", f"127.0.0.1:{self.port}")

    def prepare(self, mails: Iterable[bytes] = ()) -> None:
        """Make the archive with `mails` in it, or give the one that is there its present address."""
        made = (self.folder / "ready").exists()
        (self.folder / "home").mkdir(parents=True, exist_ok=True)
        if not made:
            self._run("public-inbox-init", "-V2", "-L", "basic", NAME, str(self.folder / NAME), self.url, LIST_ADDRESS)
        for name, value in (
            ("publicinboxmda.spamcheck", "none"),
            (f"publicinbox.{NAME}.url", self.url),
            # Lists of the outside world hold HTML mails, which public-inbox would refuse.
            (f"publicinbox.{NAME}.filter", "PublicInbox::Filter::Mirror"),
        ):
            git(self.folder, "config", "-f", str(self.folder / "config"), name, value)
        if not made:
            for mail in mails:
                self.deliver(mail)
            (self.folder / "ready").touch()

    def deliver(self, mail: bytes) -> None:
        """Hand one mail over as a mail server would. A mail that is there already changes nothing."""
        self._run("public-inbox-mda", "--no-precheck", stdin=mail)

    def _run(self, *command: str, stdin: bytes | None = None) -> None:
        run(command, cwd=self.folder, env={**os.environ, **self.environment()}, stdin=stdin)


def discussion(posted_at: int) -> list[bytes]:
    """Mails between people, as every list has them: a question, an answer that quotes a diff, one with an HTML part."""
    mails = []
    for number, name in enumerate(("discussion.eml", "answer.eml", "html.eml"), start=1):
        text = (_MAILS / name).read_text(encoding="utf-8")
        mails.append(text.replace("{date}", formatdate(posted_at - 3600 + 60 * number)).encode())
    return mails


def remark(posting: Posting, patch: bytes) -> bytes:
    """A person's answer to the last patch of a posting; it quotes the diff and is no patch."""
    mail = email.message_from_bytes(patch, policy=email.policy.default)
    diff = mail.get_content().partition("\ndiff --git ")[2].splitlines()[:6]
    parent = str(mail["Message-ID"])
    root = f"<{posting.root_message_id}>"
    quoted = [f"> diff --git {diff[0]}", *(f"> {line}" for line in diff[1:])]
    lines = [
        "From: Jon Example <jon@tidemark.example>",
        f"To: {IDENTITY}",
        f"Cc: {LIST_ADDRESS}",
        f"Subject: Re: {mail['Subject']}",
        f"Message-ID: <remark-{parent.strip('<>')}>",
        f"In-Reply-To: {parent}",
        f"References: {' '.join(dict.fromkeys((root, parent)))}",
        f"Date: {formatdate(posting.posted_at + 60)}",
        "",
        *quoted,
        "",
        "What does it cost, and on which CPUs?",
        "",
    ]
    return "\n".join(lines).encode()
