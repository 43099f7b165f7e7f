"""What a mail server that the site trusts has noted about a mail: Authentication-Results (RFC 8601)."""

import re
from collections.abc import Iterable

from server.sources.trust.dkim_proof import check_vouched
from server.sources.trust.proofs import Proof, ReadMail, UnprovableError, domain_of_sender, speaks_for

_HEADER = "authentication-results"
_UNSAFE = re.compile(r"[^\w.@+/-]")
_AROUND_SIGN = re.compile(r" *([=.]) *")
_METHOD = re.compile(r"dkim(?:/1)?", re.IGNORECASE)


def servers_for(mailing_list: str, named: Iterable[str]) -> frozenset[str]:
    """The servers that count for the mails of one list. `named` are SERVER, for all lists, and LIST=SERVER, lower case.

    A mail of another list need not have come through a server that only one list is behind: what stands there in the
    server's name, its sender can have written.
    """
    split = [name.rpartition("=") for name in named]
    return frozenset(server for taker, _, server in split if taker in {"", mailing_list.lower()})


def prove_by_results(mail: ReadMail, *, sender: str, servers: frozenset[str]) -> Proof:
    """Whether one of `servers` (lower case) says that a signature of the domain of `sender` held when the mail came.

    The server says that it held, not what it covers: that is asked of the signature itself, as long as it is there.
    Only the topmost header of theirs counts: those below may have come with the mail. They must remove, as RFC 8601
    asks, those that claim to be their own.
    """
    domain = domain_of_sender(mail, sender)
    for value in mail.values(_HEADER):
        try:
            server, *results = _plain(value).split(";")
        except ValueError:
            # It cannot be told whose it is; a forged one may hide the true one so, and wins nothing by it.
            continue
        name = (server.split() or [""])[0].lower()
        if name in servers:
            return _judged(mail, name, results, domain)
    return Proof(proved=False, how="")


def _judged(mail: ReadMail, server: str, results: list[str], domain: str) -> Proof:
    said = []
    for result in results:
        words = [word.partition("=") for word in _AROUND_SIGN.sub(r"\1", result).split()]
        if not words or not _METHOD.fullmatch(words[0][0]):
            continue
        verdict = words[0][2].lower()
        properties = {name.lower(): value for name, _sign, value in words[1:]}
        signer = _signer(properties)
        doubt = ""
        if verdict == "pass" and speaks_for(signer, domain):
            doubt = _doubt(mail, properties, domain)
            if not doubt:
                return Proof(proved=True, how=f"signed by {signer} (DKIM), {server} says")
        said.append(f"dkim={verdict} of {signer or 'an unnamed domain'}{doubt}")
    return Proof(proved=False, how=f"{server} says {', '.join(said[:5]) or 'nothing of DKIM'}")


def _doubt(mail: ReadMail, properties: dict[str, str], domain: str) -> str:
    try:
        check_vouched(
            mail,
            sender_domain=domain,
            signer=properties.get("header.d", "").lower(),
            selector=properties.get("header.s", "").lower(),
            beginning=properties.get("header.b", ""),
        )
    except UnprovableError as error:
        return f" ({error})"
    return ""


def _signer(properties: dict[str, str]) -> str:
    return (properties.get("header.d") or properties.get("header.i", "").rpartition("@")[2]).lower()


def _plain(value: str) -> str:
    """Without comments, which may hold comments, and with what is quoted as one word. ValueError if it never ends."""
    kept: list[str] = []
    depth, quoted, position = 0, False, 0
    while position < len(value):
        sign = value[position]
        if sign == "\\" and (quoted or depth):
            position += 1
        elif quoted:
            quoted = sign != '"'
            if quoted:
                kept.append(_UNSAFE.sub("_", sign))
        elif sign == "(":
            depth += 1
        elif sign == ")" and depth:
            depth -= 1
            kept.append(" ")
        elif not depth and sign == '"':
            quoted = True
        elif not depth:
            kept.append(sign)
        position += 1
    if depth or quoted:
        raise ValueError("a comment or quotation that does not end")
    return "".join(kept)
