"""A site described in one TOML file: senders, trees, lists, fragments, configs, toolchains, kinds of CPU, hosts."""

import tomllib
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any, TypeVar

import structlog
from django.core.exceptions import ValidationError
from django.db import models, transaction

from server.builds.loading import LoadedBuilds, load_entry
from server.core.errors import DomainError
from server.lab.models import Microarchitecture
from server.lab.scheduling.builders import is_local_site, local_builder
from server.lab.site_hosts import save_builder, save_machine
from server.sources.models import MailingList, Tree
from server.sources.trees.loading import read_tree, save_tree
from server.sources.trust.checking import trust_sender

log = structlog.get_logger(__name__)
_Row = TypeVar("_Row", bound=models.Model)
_SECTIONS = ("sender", "tree", "list", "fragment", "config", "toolchain", "uarch", "machine", "builder")


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
    }
    with transaction.atomic():
        for section in _SECTIONS:
            for number, entry in enumerate(description.get(section, []), start=1):
                try:
                    loaders[section](entry)
                except (KeyError, TypeError, ValueError, OSError, ValidationError, models.ObjectDoesNotExist) as error:
                    name = entry.get("name") or entry.get("address") or "without a name"
                    where = f"{path}: [[{section}]] number {number} ({name})"
                    raise DomainError("bad-site", f"{where}: {_say(error)}") from error
        if is_local_site():
            local_builder()
    return {section: len(description.get(section, [])) for section in _SECTIONS}


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
