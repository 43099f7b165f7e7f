"""Encoded words of headers (RFC 2047), also as broken mailers write them: with blanks inside, a letter cut in two."""

import binascii
import codecs
import re

# Made for names of hosts; decoding takes time that grows with the square of the text.
_HOST_NAME_CODECS = frozenset({"punycode", "idna"})
_WORD = re.compile(r"=\?([^?\s*]{1,40})(?:\*[^?\s]{0,40})?\?([bBqQ])\?([^?]*)\?=")
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/]")


def decoded_words(value: str) -> str:
    """`value` with its encoded words read; a word that cannot be read stays as it is."""
    if "=?" not in value:
        return value
    found: list[str] = []
    # Words of one charset that follow each other are one text.
    run, charset, at = b"", "", 0
    for word in _WORD.finditer(value):
        content = _content(word[2], word[3])
        if content is None:
            continue
        between, name = value[at : word.start()], word[1].lower()
        words_meet = at > 0 and not between.strip()
        if not (words_meet and name == charset):
            found.append(text_of(run, charset))
            run = b""
        if not words_meet:
            found.append(between)
        run, charset, at = run + content, name, word.end()
    return "".join([*found, text_of(run, charset), value[at:]])


def _content(encoding: str, text: str) -> bytes | None:
    if encoding in "qQ":
        return binascii.a2b_qp(text.encode("utf-8", "replace"), header=True)
    return base64_bytes(text.encode("utf-8", "replace"))


def base64_bytes(content: bytes) -> bytes | None:
    """What base64 text says; foreign characters and a wrong end are passed over. None where it says nothing."""
    try:
        return binascii.a2b_base64(content)
    except binascii.Error:
        letters = _NOT_BASE64.sub("", content.decode("latin-1"))
        # One letter alone holds less than a byte.
        letters = letters[: len(letters) - 1] if len(letters) % 4 == 1 else letters
    try:
        return binascii.a2b_base64(letters + "=" * (-len(letters) % 4))
    except binascii.Error:
        return None


def text_of(content: bytes, charset: str) -> str:
    """`content` in `charset`; UTF-8 where that is unknown. What does not fit is shown with marks."""
    if not content:
        return ""
    try:
        if codecs.lookup(charset).name not in _HOST_NAME_CODECS:
            return content.decode(charset, errors="replace")
    except (LookupError, ValueError):
        pass
    # Diffs are ASCII nearly everywhere.
    return content.decode("utf-8", errors="replace")
