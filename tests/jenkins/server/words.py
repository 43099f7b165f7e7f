"""Jenkins' typographic quotes."""

_OPEN, _CLOSE = "\u2018", "\u2019"


def quoted(text: str) -> str:
    return f"{_OPEN}{text}{_CLOSE}"
