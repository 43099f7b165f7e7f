"""Machines, builders and the canary of a site's file."""

import re
import tomllib
from collections.abc import Iterable
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any, TypeVar

import structlog
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models, transaction

from server.builds.entries import LoadedBuilds, load_entry
from server.builds.models import KernelConfig, Toolchain
from server.core import clock
from server.core.errors import DomainError
from server.lab.hosts.probes import call_physical
from server.lab.models import Builder, Canary, CoreType, Machine, Microarchitecture
from server.lab.port import dispatcher
from server.lab.work import DRIVERS, LOCAL_BUILDER, local_builder
from server.sources.models import MailingList, Tree
from server.sources.trees.entries import read_tree, save_tree
from server.sources.trust.series_check import trust_sender

_MACHINE = frozenset(
    {
        "name",
        "uarch",
        "virtual",
        "physical",
        "clock",
        "boot_driver",
        "options",
        "config",
        "toolchain",
        "boots_per_side",
        "cases",
        "node",
        "capabilities",
        "health",
    }
)
_CANARY = frozenset({"tree", "machine", "file", "to", "operators", "cases", "every_hours", "enabled", "minutes"})
_BUILDER = frozenset({"name", "arches", "toolchains", "capacity", "jobs", "node"})
# As the controller takes it in an address without quoting.
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
_CAPABILITY = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}")
_ARCH = re.compile(r"[a-z0-9_]{1,20}")
# What a file may say of a new machine; later its health is what checks and people made of it.
_FIRST_HEALTH = (Machine.Health.GOOD, Machine.Health.UNKNOWN)


def save_machine(entry: dict[str, Any]) -> None:
    """Create or update a machine. Its health is taken from the file when it is new, and left alone later."""
    _refuse_unknown(entry, _MACHINE)
    if entry["boot_driver"] not in DRIVERS:
        raise ValueError(f"boot_driver: {entry['boot_driver']!r} is none of {', '.join(sorted(DRIVERS))}")
    known = Machine.objects.filter(name=entry["name"]).first()
    fields: dict[str, Any] = {
        "uarch": Microarchitecture.objects.get(name=entry["uarch"]),
        "clock": entry.get("clock", Machine.Clock.WALL),
        "boot_driver": entry["boot_driver"],
        "driver_options": entry.get("options", {}),
        "config": KernelConfig.objects.get(name=entry["config"]),
        "toolchain": Toolchain.objects.get(name=entry["toolchain"]),
        "boots_per_side": entry.get("boots_per_side", 4),
        "cases": entry.get("cases", []),
        "node": _node(entry, known),
        "capabilities": _words(entry, "capabilities", _CAPABILITY),
    }
    health = entry.get("health", Machine.Health.GOOD)
    if health not in _FIRST_HEALTH:
        raise ValueError(f"health: {health!r} is neither of {', '.join(_FIRST_HEALTH)}")
    if known is None:
        fields["health"] = health
        if health == Machine.Health.UNKNOWN:
            fields["health_reason"] = "new: to be checked first"
    machine = known or Machine(name=entry["name"])
    if entry.get("virtual", False):
        # Only from no to yes: what probes saw is not forgotten.
        fields |= {"virtual": True, "proved_virtual": True}
    _store(machine, fields, new=known is None)
    _take_word(machine, entry.get("physical", ""))
    CoreType.objects.get_or_create(machine=machine, name="all", defaults={"cpus": ""})


def _take_word(machine: Machine, word: object) -> None:
    """`physical = "WHO: WHY"` vouches for a machine; a word that the file does not repeat stays."""
    if not isinstance(word, str):
        raise TypeError(f"physical: {word!r} is no text that says who vouches for it, and why")
    who, _, why = (part.strip() for part in word.partition(":"))
    if not word or (machine.physical_by, machine.physical_reason) == (who, why):
        return
    if not who or not why:
        raise ValueError(f"physical: {word!r} does not say who vouches for it and why: WHO: WHY")
    call_physical(machine, why, actor=who[:150])


def save_builder(entry: dict[str, Any]) -> None:
    """Create or update a builder of the controller; this host itself needs no entry."""
    _refuse_unknown(entry, _BUILDER)
    if entry["name"] == LOCAL_BUILDER:
        raise ValueError(f"{LOCAL_BUILDER} is this host itself: it needs no entry")
    known = Builder.objects.filter(name=entry["name"]).first()
    toolchains = _words(entry, "toolchains", None)
    missing = set(toolchains) - set(Toolchain.objects.values_list("name", flat=True))
    if missing:
        raise ValueError(f"toolchains: there is no toolchain {min(missing)}")
    arches = _words({"arches": entry["arches"]}, "arches", _ARCH)
    if not arches:
        raise ValueError("arches: at least one, as in the configurations: x86_64, arm64")
    fields = {
        "arches": arches,
        "toolchains": toolchains,
        "capacity": entry.get("capacity", 1),
        "jobs": entry.get("jobs", 0),
        "node": _node(entry, known),
    }
    _store(known or Builder(name=entry["name"]), fields, new=known is None)


def save_canary(entry: dict[str, Any]) -> None:
    """Create or update the one canary; one that is under way goes on as it is."""
    _refuse_unknown(entry, _CANARY)
    machine = Machine.objects.get(name=entry["machine"])
    if machine.virtual and not settings.VIRTUAL_VERDICTS:
        raise ValueError(f"machine: {machine} is virtual, and this site judges no such machine")
    minutes = entry.get("minutes", {})
    if not isinstance(minutes, dict):
        raise TypeError(f"minutes: {minutes!r} is no table of stages")
    _refuse_unknown(minutes, Canary.MINUTES)
    canary = Canary.objects.first() or Canary()
    fields = {
        "tree": Tree.objects.get(name=entry["tree"]),
        "machine": machine,
        "file": entry["file"],
        "to": entry["to"],
        "operators": entry.get("operators", ""),
        "cases": _words(entry, "cases", None),
        "every_hours": entry.get("every_hours", 24),
        "enabled": entry.get("enabled", True),
        **{f"{stage}_minutes": value for stage, value in {**Canary.MINUTES, **minutes}.items()},
    }
    if not (canary.enabled and fields["enabled"]):
        # Nobody waited for one.
        fields |= {"stage": "post", "stage_since": clock.now(), "failing_since": None, "detail": ""}
    _store(canary, fields, new=canary.pk is None)


def _store(row: Machine | Builder | Canary, fields: dict[str, Any], *, new: bool) -> None:
    for field, value in fields.items():
        setattr(row, field, value)
    row.full_clean()
    # What the service writes meanwhile (state, health, when it was seen) is not written over.
    row.save(update_fields=None if new else list(fields))


def _refuse_unknown(entry: dict[str, Any], known: Iterable[str]) -> None:
    unknown = set(entry) - set(known)
    if unknown:
        raise ValueError(f"unknown key {min(unknown)}")


def _words(entry: dict[str, Any], key: str, form: re.Pattern[str] | None) -> list[str]:
    values = entry.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{key}: {values!r} is no list of texts")
    for value in values:
        if form is not None and not form.fullmatch(value):
            raise ValueError(f"{key}: {value!r} is no word of this form: {form.pattern}")
    return sorted(set(values))


def _node(entry: dict[str, Any], known: Machine | Builder | None) -> str:
    """Its node, which no other host may have: two hosts on one node would take each other's marks away."""
    node = entry.get("node", "")
    if not isinstance(node, str) or (node and not _NODE.fullmatch(node)):
        raise ValueError(f"node: {node!r} is no node's name")
    name = node or entry["name"]
    for host in (*Machine.objects.all(), *Builder.objects.all()):
        own = known is not None and type(host) is type(known) and host.pk == known.pk
        if not own and host.node_name == name:
            raise ValueError(f"node: {name} is the node of {host.name} already")
    return node


log = structlog.get_logger(__name__)
_Row = TypeVar("_Row", bound=models.Model)
_SECTIONS = ("sender", "tree", "list", "fragment", "config", "toolchain", "uarch", "machine", "builder", "canary")


def load_site(path: Path) -> dict[str, int]:
    """Create or update everything that `path` describes; returns how many of each. Nothing is deleted.

    Raises DomainError `bad-site` that names the section and entry at fault; then nothing is changed.
    """
    try:
        description = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise DomainError("bad-site", f"{path}: {error}") from error
    unknown = set(description) - set(_SECTIONS)
    if unknown:
        raise DomainError("bad-site", f"{path}: unknown section {min(unknown)}")
    loaders = {
        "sender": lambda entry: trust_sender(address=entry["address"], note=entry.get("note", "")),
        "tree": _load_tree,
        "list": _load_list,
        "fragment": lambda entry: _load_kernels("fragment", entry, path),
        "config": lambda entry: _load_kernels("config", entry, path),
        "toolchain": lambda entry: _load_kernels("toolchain", entry, path),
        "uarch": lambda entry: _save(Microarchitecture, entry["name"], arch=entry["arch"], title=entry["title"]),
        "machine": save_machine,
        "builder": save_builder,
        "canary": save_canary,
    }
    with transaction.atomic():
        for section in _SECTIONS:
            for number, entry in enumerate(_entries(description, section), start=1):
                try:
                    loaders[section](entry)
                except (KeyError, TypeError, ValueError, OSError, ValidationError, models.ObjectDoesNotExist) as error:
                    name = entry.get("name") or entry.get("address") or "without a name"
                    where = f"{path}: [[{section}]] number {number} ({name})"
                    raise DomainError("bad-site", f"{where}: {_say(error)}") from error
        if dispatcher().is_local:
            local_builder()
    return {section: len(_entries(description, section)) for section in _SECTIONS}


def _entries(description: dict[str, Any], section: str) -> list[dict[str, Any]]:
    """Of which there is one alone is a table, [canary], all others are lists of them."""
    found = description.get(section, [])
    return [found] if isinstance(found, dict) else found


def _say(error: Exception) -> str:
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)


def _save(model: type[_Row], name: str, **fields: Any) -> _Row:
    manager = model._default_manager
    row = manager.filter(name=name).first() or model(name=name)
    for field, value in fields.items():
        setattr(row, field, value)
    row.full_clean()
    row.save()
    return row


def _load_tree(entry: dict[str, Any]) -> None:
    save_tree(read_tree(entry))


def _load_list(entry: dict[str, Any]) -> None:
    _save(
        MailingList,
        entry["name"],
        url=entry["url"],
        address=entry["address"],
        tree=Tree.objects.get(name=entry["tree"]) if "tree" in entry else None,
        since=_moment(entry.get("since")),
        proof=entry.get("proof", MailingList.Proof.DKIM),
        moderated=entry.get("moderated", True),
        poll_seconds=entry.get("poll_seconds", 60),
    )


def _moment(value: object) -> datetime | None:
    """A TOML date or time; without a zone it is UTC."""
    if value is None or (isinstance(value, datetime) and value.tzinfo):
        return value
    if not isinstance(value, date):
        raise TypeError(f"since: {value!r} is no date")
    since = value if isinstance(value, datetime) else datetime.combine(value, time())
    return since.replace(tzinfo=UTC)


def _load_kernels(section: str, entry: dict[str, Any], path: Path) -> None:
    """A fragment, configuration or toolchain: set to what the file says, whoever changed it before."""
    loaded = LoadedBuilds()
    load_entry(section, entry, path.parent, loaded, replace=True)
    for remark in loaded.remarks:
        log.warning("config_overruled", file=str(path), remark=remark)
