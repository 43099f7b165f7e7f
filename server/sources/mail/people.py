"""Who wrote a patch: not always who sent it."""

import re
from itertools import islice

from server.sources.mail.headers import Headers
from server.sources.mail.words import addresses, person

Person = tuple[str, str]
_IN_BODY = ("From:", "Subject:", "Date:")
_MERCURIAL = "# HG changeset patch"
# What `git format-patch` writes first; it is there when its file was attached.
_FORMAT_PATCH = re.compile(r"From [0-9a-f]{40} ")
# How lists that rewrite senders (DMARC) name them: 'Ada Author' via Some List.
_VIA = re.compile(r"'?([^']{1,200}?)'? via(?: .{0,200})?|'([^']{1,200})'")
_MAX_LINE = 1_000
_MAX_LINES = 12
# Reading each takes time, and no one copies a patch to more.
_MOST_PEOPLE = 200


def author_of(text: str, sender: Person, headers: Headers) -> Person:
    """Who the patch is from: whom its text names first of all, else the sender, seen through a list's rewriting.

    No proof of anything: anyone can write such lines and headers.
    """
    return author_in(text) or rewritten(sender, headers) or sender


def author_in(text: str) -> Person | None:
    """The in-body From of git, or Mercurial's user."""
    lines = text.lstrip()[: _MAX_LINE * _MAX_LINES].split("\n", _MAX_LINES)[:_MAX_LINES]
    mercurial = lines[0].startswith(_MERCURIAL)
    start = "# User" if mercurial else "From:"
    for line in lines[1:] if mercurial or _FORMAT_PATCH.match(lines[0]) else lines:
        if line.startswith(start) and len(line) <= _MAX_LINE:
            found = person(line[len(start) :])
            return found if found[1] else None
        if not line.startswith("#" if mercurial else _IN_BODY):
            return None
    return None


def rewritten(sender: Person, headers: Headers) -> Person | None:
    """Who wrote to a list that put its own address into From; None where it did not, or does not say."""
    name, address = sender
    found = _VIA.fullmatch(name)
    if not found or address.lower() not in addresses([*headers.every("to"), *headers.every("cc")]):
        return None
    wanted = (found[1] or found[2]).lower()
    original = person(headers.first("x-original-from")[:_MAX_LINE])
    if original[1]:
        return original
    named = (one for value in [*headers.every("reply-to"), *headers.every("cc")] for one in value.split(","))
    people = (person(one[:_MAX_LINE]) for one in islice(named, _MOST_PEOPLE))
    return next((p for p in people if p[0].lower() == wanted and p[1] and p[1].lower() != address.lower()), None)
