"""Kernel configuration: whether what was asked for survived."""

import re
from typing import Final

_SET = re.compile(r"(CONFIG_\w+)=(.*)")
_UNSET = re.compile(r"# (CONFIG_\w+) is not set")
# What draws random numbers while a kernel is built. Keys of modules: only where the tree makes them itself.
_RANDOM: Final = {
    "CONFIG_RANDSTRUCT": "y",
    "CONFIG_GCC_PLUGIN_RANDSTRUCT": "y",
    "CONFIG_MODULE_SIG_KEY": '"certs/signing_key.pem"',
}


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


def lost_symbols(fragment: str, config: str) -> dict[str, str]:
    """The symbols of `fragment` whose value `config` does not have, each with `wanted (has ...)`."""
    have = parse_config(config)
    lost = {}
    for symbol, wanted in parse_config(fragment).items():
        found = have.get(symbol, "n")
        if found != wanted:
            lost[symbol] = f"{wanted} (has {found})"
    return lost


def random_parts(config: str) -> list[str]:
    """The symbols of `config` that make every build of one source a different one."""
    have = parse_config(config)
    return [symbol for symbol, value in _RANDOM.items() if have.get(symbol) == value]
