"""What a person has done by the command line: a series handed in, let run, measured again, a finding assigned; each
needs a token.
"""

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tidemark.api import ApiError, Tidemark

# More than the service takes.
_MOST_BYTES = 1024 * 1024
ACTS = ("submit", "approve", "retest", "assign")


def add_acts(commands: Any) -> None:
    submit = commands.add_parser("submit", help="hand in a series to be measured, as an mbox (- is standard input)")
    submit.add_argument("mbox", help="what git format-patch --stdout, or b4, wrote")
    approve = commands.add_parser("approve", help="let a held series run; without --seen, say what is to be read")
    approve.add_argument("series", type=int)
    approve.add_argument("--seen", metavar="MARK", help="what the command said without it: of the mails you have read")
    approve.add_argument("--reason", help="why, for its history")
    retest = commands.add_parser("retest", help="have a series measured again, with fresh boots")
    retest.add_argument("series", type=int)
    retest.add_argument("--machine", action="append", default=[], help="there only; may come several times")
    retest.add_argument("--reason", required=True, help="why, for its history")
    assign = commands.add_parser("assign", help="have somebody look after a finding: you, if nobody is named")
    assign.add_argument("finding", type=int)
    whom = assign.add_mutually_exclusive_group()
    whom.add_argument("--to", metavar="NAME", help="login name of who is to")
    whom.add_argument("--nobody", action="store_true", help="nobody is to")
    assign.add_argument("--seen", type=int, metavar="MARK", help="of the finding as you read it; refused if it changed")
    for one in (submit, approve, retest, assign):
        one.add_argument(
            "--token-file",
            default=os.environ.get("TIDEMARK_TOKEN_FILE", ""),
            help="file that holds your token (or TIDEMARK_TOKEN_FILE, or the token itself in TIDEMARK_TOKEN)",
        )


def token_of(chosen: argparse.Namespace) -> str:
    """Never from the command line, which every user of a host can read."""
    path = getattr(chosen, "token_file", "")
    if not path:
        return os.environ.get("TIDEMARK_TOKEN", "").strip()
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ApiError(f"--token-file: {path} cannot be read: {error}", code="usage") from error


def act(service: Tidemark, chosen: argparse.Namespace) -> Iterable[str]:
    """Do what was chosen; the lines that tell of it."""
    if chosen.command == "submit":
        return _submit(service, chosen.mbox)
    if chosen.command == "approve":
        return _approve(service, chosen)
    if chosen.command == "assign":
        return _assign(service, chosen)
    body = {"reason": chosen.reason, "machines": chosen.machine}
    told = service.post(f"series/{chosen.series}/retest", body)
    word = "is measured again" if told["acted"] else "is being measured again already"
    return [f"series {told['series']} {word}, by trial {told['trial']}", str(told["location"])]


def _assign(service: Tidemark, chosen: argparse.Namespace) -> list[str]:
    body: dict[str, Any] = {} if chosen.seen is None else {"seen": chosen.seen}
    if chosen.nobody or chosen.to is not None:
        body["assignee"] = None if chosen.nobody else chosen.to
    told = service.post(f"findings/{chosen.finding}/assign", body)
    whose = f"assigned to {told['assignee']}" if told["assignee"] else "assigned to nobody"
    return [f"finding {told['finding']} is {whose}{'' if told['acted'] else ', and was so before'}"]


def _submit(service: Tidemark, path: str) -> list[str]:
    try:
        with sys.stdin.buffer if path == "-" else Path(path).open("rb") as stream:
            box = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ApiError(f"{path} cannot be read: {error.strerror}", code="usage") from error
    if len(box) > _MOST_BYTES:
        raise ApiError(f"{path} is larger than {_MOST_BYTES} bytes", code="usage")
    told = service.post("series", box, kind="application/mbox")
    known = "" if told["stored"] else ", all of which were handed in before"
    return [f"{told['mails']} mails of <{told['message_id']}>{known}", str(told["location"])]


def _approve(service: Tidemark, chosen: argparse.Namespace) -> list[str]:
    if chosen.seen is None:
        read = service.get(f"series/{chosen.series}/approval")
        again = f"tidemark approve {chosen.series} --seen {read['seen']} --reason WHY"
        end = f"to let it run, once you have read its mails: {again}" if read["may_be_approved"] else "it is not held"
        return [*read["told"], end]
    if not (chosen.reason or "").strip():
        raise ApiError("--reason: say why it may run", code="usage")
    told = service.post(f"series/{chosen.series}/approval", {"reason": chosen.reason, "seen": chosen.seen})
    return [f"series {told['series']} is {told['state']}{'' if told['acted'] else ', and was so before'}"]
