"""Words of others on a terminal."""

import unicodedata

_LONGEST = 300
# Controls (escape sequences begin with one), format characters (they turn the direction of writing), surrogates.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def one_line(text: str, longest: int = _LONGEST) -> str:
    """`text` in one line without anything that a terminal would act on, cut to `longest` characters."""
    # Cut before it is looked at: it may be megabytes.
    words = " ".join(text[: 4 * longest].split())
    plain = "".join("?" if unicodedata.category(letter) in _UNPRINTABLE else letter for letter in words)
    return plain if len(plain) <= longest else f"{plain[: longest - 3]}..."
