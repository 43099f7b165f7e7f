"""`enrol URL CODE`: a host comes into a lab. The code that a person made for it is exchanged for its token, once.

Whatever can be wrong on this host is looked at first, for a code that was used is used up.
"""

import argparse
import os
import re
import socket
import stat
import sys
import threading
import tomllib
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tidemark_agent.config import DEFAULT_CONFIG, DEFAULT_STATE, AgentConfig, ConfigError, read_config
from tidemark_agent.errors import AgentError, RefusedError, file_trouble
from tidemark_agent.log import Log
from tidemark_agent.probe.facts import Facts, probe_system
from tidemark_agent.system.disk import settle, sync_directory, temporary_for
from tidemark_agent.version import agent_version
from tidemark_agent.wire.host import short_client
from tidemark_agent.wire.transport import LOOPBACK, TemporaryError, build_opener, exchange, json_body, usable_token

ENROLLED, FAILED, REFUSED, NOT_REACHED = 0, 1, 3, 75
_OWNER_ONLY = 0o600
_PRIVATE = 0o700
_LONGEST_HOST = 200
# A clock that is further off than this makes certificates and dates in logs wrong.
_CLOCK_OFF_SECONDS = 300.0
_HELLO_SECONDS = 10.0
_UNIT = Path("/etc/systemd/system/tidemark-agent.service")
# What the service says, and what to do about it.
_ADVICE = {
    "code-unknown": "The code is compared whatever its dashes, blanks and small letters; 0, 1, I and O are in none.",
    "code-expired": "On the service: manage.py enrol_machine NAME",
    "code-used": "If it was this host, and the answer was lost: manage.py enrol_machine NAME makes another",
    "other-uarch": "The code is still good. `tidemark-agent probe` says more; is this the right machine?",
}


class EnrolmentError(Exception):
    """Why this host is not in the lab, for whoever stands before it; `status` is what the program ends with."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Home:
    """Where this host keeps what the agent needs; `known` is the configuration that was there before."""

    config_file: Path
    token_file: Path
    state_dir: Path
    ca_file: Path | None
    known: AgentConfig | None


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("server", metavar="URL", help="address of the service: https://tidemark.example.org")
    parser.add_argument("code", help="as `manage.py enrol_machine` printed it there")
    parser.add_argument("--config", type=Path, default=DEFAULT_CONFIG, help=f"default: {DEFAULT_CONFIG}")
    parser.add_argument("--state-dir", type=Path, default=DEFAULT_STATE, help=f"default: {DEFAULT_STATE}")
    parser.add_argument("--ca-file", type=Path, help="certificates that are trusted beside the system's")
    parser.add_argument("--again", action="store_true", help="though this host has a token that is taken")


def enrol(options: argparse.Namespace) -> int:
    """The exit status: 0 enrolled, 1 the disk failed, 3 refused or wrong, 75 the service was not reached."""
    server = str(options.server).rstrip("/")
    try:
        _check_address(server)
        home = _home(options, server)
        if not options.again:
            _check_new(home, server)
        amended = _amended(home)
        _check_writable(home, amended)
        facts = probe_system(Path("/"))
        answer = _exchanged(server, options.code, home, facts)
        _keep(home, server, answer, amended)
    except EnrolmentError as error:
        print(f"tidemark-agent: {error}", file=sys.stderr)
        return error.status
    print("\n".join(_told(home, server, answer, facts)))
    return ENROLLED


def _check_address(server: str) -> None:
    address = urlsplit(server)
    if address.scheme not in {"https", "http"} or not address.hostname:
        raise EnrolmentError(REFUSED, f"{server!r} is no address of a service: https://tidemark.example.org")
    if address.scheme == "http" and address.hostname not in LOOPBACK:
        print("tidemark-agent: through plain http the code and the token can be read on the way", file=sys.stderr)


def _home(options: argparse.Namespace, server: str) -> Home:
    file = options.config
    ca_file = options.ca_file.resolve() if options.ca_file else None
    if not file.exists():
        return Home(file, file.parent / "token", options.state_dir, ca_file, None)
    try:
        known = read_config(file)
    except ConfigError as error:
        raise EnrolmentError(REFUSED, f"{error}; put it right, or away") from error
    if known.server.rstrip("/") != server:
        told = f"{file} is for the service at {known.server}: change `server` there, or put the file away"
        raise EnrolmentError(REFUSED, told)
    return Home(file, known.token_file, known.state_dir, ca_file or known.ca_file, known)


def _check_new(home: Home, server: str) -> None:
    """Raise EnrolmentError where the token that lies here is taken by the service."""
    if not home.token_file.exists():
        return
    try:
        client = short_client(server, home.token_file, home.ca_file, Log(_Silent()), threading.Event())
        body = {"version": agent_version(), "host": _host()}
        client.post("hello", body, patience=_HELLO_SECONDS, failures=1)
    except AgentError:
        # Not taken any more, or the service is away: the exchange says what is wrong.
        return
    told = f"this host is enrolled already: the service takes the token in {home.token_file}"
    raise EnrolmentError(REFUSED, f"{told}. With --again it gets a new one")


class _Silent:
    """Where nobody waits for lines of JSON."""

    def write(self, text: str, /) -> object:
        return len(text)

    def flush(self) -> None: ...


def _check_writable(home: Home, amended: str | None) -> None:
    folders = {home.config_file.parent, home.token_file.parent, home.state_dir}
    try:
        if amended is not None:
            folders.add(home.config_file.resolve().parent)
        for folder in folders:
            folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK):
                raise PermissionError(f"{folder} cannot be written")
    except PermissionError as error:
        raise EnrolmentError(REFUSED, f"{error}: run it as root, or name another --config and --state-dir") from error
    except OSError as error:
        raise EnrolmentError(FAILED, file_trouble(error)) from error


def _exchanged(server: str, code: str, home: Home, facts: Facts) -> dict[str, Any]:
    seen = facts.as_json()
    shown = {name: seen.get(name) for name in ("uarch", "arch", "model_name", "cpus", "memory_kb", "virtual")}
    body = {"code": code, "version": agent_version(), "host": _host(), "facts": shown}
    request = urllib.request.Request(  # noqa: S310 (the operator's own address)
        f"{server}/api/v1/enrolments/", data=json_body(body), headers={"Content-Type": "application/json"}
    )
    request.add_header("Accept", "application/json, application/problem+json")
    try:
        answer = exchange(build_opener(server, home.ca_file), request).value
        usable_token(str(answer.get("token", "")))
    except RefusedError as error:
        advice = _ADVICE.get(error.code, "")
        raise EnrolmentError(REFUSED, f"refused: {error.reason}{f'. {advice}' if advice else ''}") from error
    except TemporaryError as error:
        raise EnrolmentError(NOT_REACHED, _unreached(server, str(error))) from error
    except AgentError as error:
        raise EnrolmentError(REFUSED, str(error)) from error
    return answer


def _unreached(server: str, why: str) -> str:
    told = f"no answer of a Tidemark service at {server}: {why}"
    if "not yet valid" in why or "has expired" in why:
        now = datetime.now(UTC)
        return f"{told}. This host's clock says {now:%Y-%m-%d %H:%M} UTC: is it right? Set it, then try again"
    if "certificate is not trusted" in why:
        return f"{told}. For a certificate of your own: --ca-file FILE"
    return f"{told}. Nothing was used up unless the answer was lost: try again"


def _keep(home: Home, server: str, answer: dict[str, Any], amended: str | None) -> None:
    try:
        _write(home.token_file, f"{answer['token']}\n")
        if home.known is None:
            _write(home.config_file, _configuration(home, server, pull=answer.get("pull") is True))
        elif amended is not None:
            _amend(home.config_file.resolve(), amended)
    except OSError as error:
        told = f"the token could not be kept, so it is lost: {file_trouble(error)}; have another code made"
        raise EnrolmentError(FAILED, told) from error


def _amended(home: Home) -> str | None:
    """The configuration that was there, with the certificates that are trusted now; None where it names them already.

    Keys before the first table are those of the file itself. What looks like a table, or like the key, may be part of a
    text or a list of several lines: what would come out is read before anything is written or the code used.
    """
    if home.known is None or home.ca_file == home.known.ca_file:
        return None
    before = home.config_file.read_text(encoding="utf-8")
    named = f"ca_file = {_quoted(str(home.ca_file))}"
    lines = before.splitlines()
    tables = next((place for place, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
    own = [line for line in lines[:tables] if not re.match(r"\s*[\"']?ca_file[\"']?\s*=", line)]
    text = "\n".join([named, *own, *lines[tables:]]) + "\n"
    wanted = {**tomllib.loads(before), "ca_file": str(home.ca_file)}
    try:
        right = tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        right = False
    if not right:
        told = f"the certificates cannot be named in {home.config_file} without harm to what else it says"
        raise EnrolmentError(REFUSED, f"{told}: write {named} there before the first table, then try again")
    return text


def _amend(file: Path, text: str) -> None:
    before = file.stat()
    _write(file, text, mode=stat.S_IMODE(before.st_mode), owner=(before.st_uid, before.st_gid))


def _write(file: Path, text: str, *, mode: int = _OWNER_ONLY, owner: tuple[int, int] | None = None) -> None:
    temporary = temporary_for(file)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWNER_ONLY)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            if owner is not None:
                os.fchown(stream.fileno(), *owner)
            os.fchmod(stream.fileno(), mode)
            stream.write(text)
        settle(temporary, file)
        sync_directory(file.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _configuration(home: Home, server: str, *, pull: bool) -> str:
    lines = [f"server = {_quoted(server)}", f"token_file = {_quoted(str(home.token_file.absolute()))}"]
    lines.append(f"state_dir = {_quoted(str(home.state_dir.absolute()))}")
    if home.ca_file is not None:
        lines.append(f"ca_file = {_quoted(str(home.ca_file))}")
    if pull:
        lines.append("pull = true")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _told(home: Home, server: str, answer: dict[str, Any], facts: Facts) -> list[str]:
    """What was done, and what comes next."""
    pull, subject = answer.get("pull") is True, str(answer.get("subject"))
    what = f"{answer.get('scope')} {subject}"
    lines = [f"This host is {what} of {server}: {facts.uarch}, {facts.arch}, {facts.cpus} CPUs."]
    lines.append(f"Its token is in {home.token_file}, its configuration in {home.config_file}.")
    if (off := _clock_off(str(answer.get("at", "")))) is not None:
        lines.append(f"Its clock is {off:.0f} s off the service's: set it (systemd-timesyncd, chrony).")
    lines.append("Next:")
    step = 1
    if pull and home.known is not None and not home.known.pull:
        lines.append(f"  {step}. In {home.config_file}: pull = true")
        step += 1
    if answer.get("accepted") is False:
        where = f"{server}/machines/{subject}/" if answer.get("scope") == "machine" else f"{server}/builders/{subject}/"
        lines.append(f"  {step}. Somebody of the lab looks at {where} and accepts what it says of itself.")
        step += 1
    if pull:
        there = "" if _UNIT.exists() else f", once its unit is there ({_UNIT}, from agents/systemd)"
        lines.append(f"  {step}. systemctl enable --now tidemark-agent.service{there}")
    else:
        lines.append(f"  {step}. As the site's dispatcher wants it: docs/operations/add-a-machine.md")
    return lines


def _clock_off(at: str) -> float | None:
    try:
        off = (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds()
    except (ValueError, TypeError):
        return None
    return off if abs(off) > _CLOCK_OFF_SECONDS else None


def _host() -> str:
    return socket.gethostname()[:_LONGEST_HOST]
