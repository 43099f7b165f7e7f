"""The configuration file of an agent, on machines, builders and the control host: /etc/tidemark/agent.toml."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark_agent.errors import InfrastructureError
from tidemark_agent.prepare import PrepareConfig

DEFAULT_CONFIG = Path("/etc/tidemark/agent.toml")
DEFAULT_STATE = Path("/var/lib/tidemark-agent")
# An oops ends the boot: what a damaged kernel measures is worth nothing. Ten seconds leave time for the console.
DEFAULT_WORDS = "panic=10 oops=panic"
# How long the server waits for a machine that is rebooting before it gives the work to another attempt.
DEFAULT_AWAY_SECONDS = 900
MOST_AWAY_SECONDS = 3600
# A management controller answers slowly, and switching off for some seconds is part of it.
DEFAULT_POWER_SECONDS = 120
_MOST_POWER_SECONDS = 3600
_MOST_JOBS = 4096
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ConfigError(InfrastructureError):
    """The configuration file is missing or says something that makes no sense."""


@dataclass(frozen=True)
class BootConfig:
    """How this machine is brought into a kernel.

    `command_line` None means that of the kernel in which the session began. `words` stand on every test kernel's
    command line. `initramfs` makes one, with {initramfs}, {release}, {image} and {modules} filled in. `reboot` starts
    what kexec has loaded, `restart` goes through the firmware; empty: whatever this system has. `watchdog` is a device,
    or empty.
    """

    command_line: str | None = None
    words: str = DEFAULT_WORDS
    initramfs: tuple[str, ...] = ()
    reboot: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()
    grub_environment: Path = Path("/boot/grub/grubenv")
    watchdog: str = ""
    away_seconds: int = DEFAULT_AWAY_SECONDS


@dataclass(frozen=True)
class BuildConfig:
    """How this builder builds. `jobs` 0 means as many as the service says; `ccache` None: in the state directory.

    `git_credentials` is a file of lines https://USER:PASSWORD@HOST, for a mirror that asks who comes.
    """

    ccache: Path | None = None
    jobs: int = 0
    git_credentials: Path | None = None


@dataclass(frozen=True)
class PowerConfig:
    """How this host switches other machines off and on: a command with {machine} and {node} in it, and its time."""

    command: tuple[str, ...] = ()
    timeout_seconds: int = DEFAULT_POWER_SECONDS


@dataclass(frozen=True)
class AgentConfig:
    """What the operator decided about one host.

    `pull`: it asks the service for work itself. `counters` asks for extra runs below `perf stat`. `programs` are
    external ones by name: `perf = "/opt/perf"`, or `perf = {path = "/opt/perf", sha256 = "..."}`, whose hash is then in
    `pins`.
    """

    server: str
    token_file: Path
    state_dir: Path = DEFAULT_STATE
    ca_file: Path | None = None
    pull: bool = False
    counters: bool = False
    boot: BootConfig = field(default_factory=BootConfig)
    build: BuildConfig = field(default_factory=BuildConfig)
    power: PowerConfig = field(default_factory=PowerConfig)
    prepare: PrepareConfig = field(default_factory=PrepareConfig)
    programs: Mapping[str, Path] = field(default_factory=dict)
    pins: Mapping[str, str] = field(default_factory=dict)


def read_config(path: Path = DEFAULT_CONFIG) -> AgentConfig:
    """The configuration in `path`; raises ConfigError that says what is wrong in which place."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        return config_of(data)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error}") from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the configuration {path} is wrong: {error}") from error


def config_of(data: Mapping[str, Any]) -> AgentConfig:
    """The configuration in a parsed file; raises ValueError or TypeError. A key nobody knows is a mistake."""
    table = _Table("", dict(data))
    programs, pins = _programs(table.table("programs").rest())
    config = AgentConfig(
        server=table.text("server"),
        token_file=Path(table.text("token_file")),
        state_dir=Path(table.text("state_dir", str(DEFAULT_STATE))),
        ca_file=Path(file) if (file := table.text("ca_file", "")) else None,
        pull=table.truth("pull"),
        counters=table.truth("counters"),
        boot=_boot(table.table("boot")),
        build=_build(table.table("build")),
        power=_power(table.table("power")),
        prepare=_prepare(table.table("prepare")),
        programs=programs,
        pins=pins,
    )
    table.finish()
    if not config.server.startswith(("https://", "http://")):
        raise ValueError(f"server is {config.server!r}, no address of a service")
    return config


def _boot(table: "_Table") -> BootConfig:
    config = BootConfig(
        command_line=table.text("command_line", "") or None,
        words=table.text("words", DEFAULT_WORDS),
        initramfs=table.words("initramfs"),
        reboot=table.words("reboot"),
        restart=table.words("restart"),
        grub_environment=Path(table.text("grub_environment", "/boot/grub/grubenv")),
        watchdog=table.text("watchdog", ""),
        away_seconds=table.number("away_seconds", DEFAULT_AWAY_SECONDS, largest=MOST_AWAY_SECONDS),
    )
    table.finish()
    return config


def _build(table: "_Table") -> BuildConfig:
    config = BuildConfig(
        ccache=_place(table, "ccache"),
        jobs=table.number("jobs", 0, largest=_MOST_JOBS),
        git_credentials=_place(table, "git_credentials"),
    )
    table.finish()
    return config


def _place(table: "_Table", key: str) -> Path | None:
    text = table.text(key, "")
    if text and not Path(text).is_absolute():
        raise ValueError(f"build.{key} is {text!r}, which is no absolute path")
    return Path(text) if text else None


def _power(table: "_Table") -> PowerConfig:
    config = PowerConfig(
        command=table.words("command"),
        timeout_seconds=table.number("timeout_seconds", DEFAULT_POWER_SECONDS, largest=_MOST_POWER_SECONDS),
    )
    table.finish()
    if not config.timeout_seconds:
        raise ValueError("power.timeout_seconds must be above 0")
    if config.command and not Path(config.command[0]).is_absolute():
        raise ValueError(f"power.command begins with {config.command[0]!r}, which is no absolute path")
    return config


def _prepare(table: "_Table") -> PrepareConfig:
    config = PrepareConfig(
        housekeeping_cpus=table.text("housekeeping_cpus", ""),
        quiet_services=table.words("quiet_services"),
        tolerate=frozenset(table.words("tolerate")),
    )
    table.finish()
    return config


def _programs(data: Mapping[str, Any]) -> tuple[dict[str, Path], dict[str, str]]:
    programs, pins = {}, {}
    for name, about in data.items():
        table = _Table(f"programs.{name}.", about if isinstance(about, dict) else {"path": about})
        programs[name] = Path(table.text("path"))
        if not programs[name].is_absolute():
            raise ValueError(f"programs.{name} is {str(programs[name])!r}, which is no absolute path")
        pin = table.text("sha256", "")
        if pin:
            if not _SHA256.fullmatch(pin):
                raise ValueError(f"programs.{name}.sha256 is no SHA-256 in lower-case hex")
            pins[name] = pin
        table.finish()
    return programs, pins


class _Table:
    """One table of the file, from which each key is taken once."""

    def __init__(self, name: str, data: dict[str, Any]) -> None:
        self._name = name
        self._data = data

    def text(self, key: str, default: str | None = None) -> str:
        value = self._take(key, default)
        if not isinstance(value, str):
            raise TypeError(f"{self._name}{key} must be a text")
        return value

    def words(self, key: str) -> tuple[str, ...]:
        value = self._take(key, [])
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise TypeError(f"{self._name}{key} must be a list of texts")
        return tuple(value)

    def number(self, key: str, default: int, *, largest: int) -> int:
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= largest:
            raise ValueError(f"{self._name}{key} must be a number from 0 to {largest}")
        return value

    def truth(self, key: str) -> bool:
        value = self._take(key, False)
        if not isinstance(value, bool):
            raise TypeError(f"{self._name}{key} must be true or false")
        return value

    def table(self, key: str) -> "_Table":
        value = self._take(key, {})
        if not isinstance(value, dict):
            raise TypeError(f"[{key}] must be a table")
        return _Table(f"{key}.", dict(value))

    def rest(self) -> dict[str, Any]:
        found, self._data = self._data, {}
        return found

    def finish(self) -> None:
        if self._data:
            raise ValueError(f"unknown key {self._name}{min(self._data)}")

    def _take(self, key: str, default: Any) -> Any:
        value = self._data.pop(key, default)
        if value is None:
            raise ValueError(f"{self._name}{key} is missing")
        return value
