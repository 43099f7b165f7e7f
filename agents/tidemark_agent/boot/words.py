"""Kernel command lines: made for one boot, checked before any program sees them."""

from collections.abc import Iterable

from tidemark_agent.errors import InfrastructureError

NONCE_WORD = "tidemark.boot="
# In the log of a kernel that hands over to the next: how it dies from here on is not the next one's doing.
LEAVING = "tidemark-agent leaves this kernel"
# x86 kernels keep 2048 bytes including the final NUL, and cut off the rest without a word.
_LONGEST = 2047
# BOOT_IMAGE and initrd are what the boot loader adds; the rest we set ourselves.
_OURS = ("BOOT_IMAGE=", "initrd=", "tidemark.", "panic=", "oops=")


def command_line(base: str, *, words: Iterable[str], nonce: str) -> str:
    """`base` without one-shot words, then `words`, then this boot's nonce; raises InfrastructureError if unusable."""
    kept = [word for word in split_words(base) if not word.startswith(_OURS)]
    added = [word for text in words for word in split_words(text)]
    line = " ".join([*kept, *added, f"{NONCE_WORD}{nonce}"])
    if len(line.encode()) > _LONGEST:
        raise InfrastructureError(f"the kernel's command line has {len(line.encode())} bytes, {_LONGEST} are possible")
    return line


def split_words(line: str) -> list[str]:
    """The words of a command line, in which double quotes keep blanks together as the kernel reads them."""
    if not line.isascii() or not all(character.isprintable() for character in line.strip("\n")):
        raise InfrastructureError(f"the kernel's command line has characters that it cannot have: {line[:200]!r}")
    words, word, quoted = [], "", False
    for character in line.strip():
        if character == '"':
            quoted = not quoted
        if character == " " and not quoted:
            words.append(word)
            word = ""
        else:
            word += character
    if quoted:
        raise InfrastructureError(f"the kernel's command line has an open quote: {line[:200]!r}")
    return [word for word in [*words, word] if word]


def nonce_of(line: str) -> str:
    """The nonce on a running kernel's command line, or "" if it was not started for a measurement."""
    found = [word.removeprefix(NONCE_WORD) for word in line.split() if word.startswith(NONCE_WORD)]
    return found[-1] if found else ""
