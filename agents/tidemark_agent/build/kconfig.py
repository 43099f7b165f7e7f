"""Kernel configuration: whether what was asked for survived."""

import re

_SET = re.compile(r"(CONFIG_\w+)=(.*)")
_UNSET = re.compile(r"# (CONFIG_\w+) is not set")


def parse_config(text: str) -> dict[str, str]:
    """Symbol to value, as .config writes values; a symbol that is said to be unset has "n". The last line wins."""
    symbols: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.strip()
        if match := _SET.fullmatch(line):
            symbols[match[1]] = match[2]
        elif match := _UNSET.fullmatch(line):
            symbols[match[1]] = "n"
    return symbols


def lost_symbols(fragment: str, config: str) -> list[str]:
    """The symbols of `fragment` whose value `config` does not have, each as NAME=wanted (has ...)."""
    have = parse_config(config)
    lost = []
    for symbol, wanted in parse_config(fragment).items():
        found = have.get(symbol, "n")
        if found != wanted:
            lost.append(f"{symbol}={wanted} (has {found})")
    return lost
