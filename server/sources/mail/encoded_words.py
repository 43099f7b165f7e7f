"""Encoded words of headers (RFC 2047), also as broken mailers write them: with blanks inside, a letter cut in two."""

import binascii
import codecs
import re

# As mails are written, by Python's names. Python has others that are no charsets of mails: one reads `\x2a` as a star,
# another takes time that grows with the square of the text. In these, ASCII is itself.
_PLAIN = frozenset(
    {"utf-8", "ascii", "koi8-r", "koi8-u", "mac-roman", "tis-620"}
    | {f"iso8859-{number}" for number in (*range(1, 12), *range(13, 17))}
    | {f"cp{number}" for number in (437, 850, 852, 866, 874, *range(1250, 1259))}
)
# In these, bytes of ASCII may be parts of other letters.
_MIXED = frozenset(
    {"gb2312", "gbk", "gb18030", "big5", "big5hkscs", "shift_jis", "cp932", "cp949", "cp950", "euc_jp", "euc_kr"}
    | {"iso2022_jp", "iso2022_kr", "hz"}
)
_BEYOND_ASCII = re.compile(r"[^\0-\x7f]+")
_BYTES_BEYOND_ASCII = re.compile(rb"[\x80-\xff]+")
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
    """`content` in `charset`; UTF-8 where that is none of mails. What does not fit is shown with marks."""
    name = _codec(charset)
    return content.decode(name if name in _PLAIN | _MIXED else "utf-8", errors="replace") if content else ""


def body_of(content: bytes, charset: str) -> str:
    """The same for what git may apply: it takes a diff's bytes as they are, so a charset changes no letter of ASCII."""
    text = text_of(content, charset)
    if _codec(charset) in _MIXED:
        letters = _BEYOND_ASCII.sub("\x80", text).encode("latin-1")
        if letters != _BYTES_BEYOND_ASCII.sub(b"\x80", content):
            return content.decode("utf-8", errors="replace")
    return text


def _codec(charset: str) -> str:
    try:
        return codecs.lookup(charset).name
    except (LookupError, ValueError):
        return ""
