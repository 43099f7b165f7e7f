"""What a configuration says in the end, and the hash of all that decides a kernel besides its source."""

import hashlib

from server.builds.config_lines import Overruled, Part, merged, overruled
from server.builds.models import ConfigFragment, KernelConfig, Toolchain
from server.core.errors import DomainError


def effective_text(config: KernelConfig) -> str:
    """All CONFIG_ lines of this configuration: shared fragments in their order, its own last; the later line counts.

    Raises DomainError `bad-config` when it names a fragment that is not there or is for another architecture, or when a
    text has a line that is none.
    """
    try:
        return merged(config_parts(config))
    except ValueError as error:
        raise DomainError("bad-config", f"configuration {config.name}: {error}") from error


def config_parts(config: KernelConfig) -> list[Part]:
    """The texts of a configuration in the order in which they are merged. Raises DomainError `bad-config`."""
    if not config.fragments:
        return [Part(config.name, config.fragment)]
    rows = {row.name: row for row in ConfigFragment.objects.filter(name__in=config.fragments)}
    parts = []
    for name in config.fragments:
        row = rows.get(name)
        if row is None:
            raise DomainError("bad-config", f"configuration {config.name}: there is no fragment {name}")
        if row.arch not in {"", config.arch}:
            wrong = f"fragment {name} is for {row.arch}, not for {config.arch}"
            raise DomainError("bad-config", f"configuration {config.name}: {wrong}")
        parts.append(Part(f"fragment {name}", row.lines))
    return [*parts, Part(f"configuration {config.name}", config.fragment)]


def contradictions(config: KernelConfig) -> list[Overruled]:
    """Symbols that parts of this configuration set differently. Raises DomainError `bad-config`."""
    try:
        return overruled(config_parts(config))
    except ValueError as error:
        raise DomainError("bad-config", f"configuration {config.name}: {error}") from error


def cross_prefix(toolchain: Toolchain, arch: str) -> str:
    """What the names of the toolchain's programs begin with when they compile for `arch`; empty: nothing."""
    return str(toolchain.cross.get(arch, ""))


def recipe_of(config: KernelConfig, toolchain: Toolchain) -> str:
    """SHA-256 in hex of what decides the files of a build besides the source: rows can be edited, a build cannot.

    What was added to recipes later counts only where it is used, so that kernels of before are still found.
    """
    parts = [config.base, effective_text(config), toolchain.compiler]
    cross = cross_prefix(toolchain, config.arch)
    later = {
        "family": "" if toolchain.family == Toolchain.Family.GCC else toolchain.family,
        "cross": cross,
        "perf": "yes" if config.perf else "",
    }
    parts += [f"{name}={value}" for name, value in later.items() if value]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
