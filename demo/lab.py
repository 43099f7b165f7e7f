"""The demo's site as one file for `manage.py load_site`: lab.toml's machines and this run's tree and list."""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path

from demo.archive import NAME as LIST_NAME
from demo.postings import LIST_ADDRESS
from demo.processes import ADDRESS

LAB = Path(__file__).resolve().parent / "lab.toml"
TREE_NAME = "stable"
WALL_MACHINE = "vm-haswell-wall"


@dataclass(frozen=True)
class MachinePlan:
    name: str
    uarch: str
    clock: str
    boots_per_side: int


def planned_machines() -> tuple[MachinePlan, ...]:
    description = tomllib.loads(LAB.read_text(encoding="utf-8"))
    return tuple(
        MachinePlan(entry["name"], entry["uarch"], entry["clock"], entry["boots_per_side"])
        for entry in description["machine"]
    )


def write_site(folder: Path, *, repository: Path, branches: list[str], list_url: str) -> Path:
    """The site's file and the kernel configuration beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.config").write_bytes((LAB.parent / "kernel.config").read_bytes())
    # JSON's strings and arrays of strings are TOML's as well.
    parts = [
        LAB.read_text(encoding="utf-8"),
        "[[sender]]",
        f"address = {json.dumps(ADDRESS)}",
        'note = "who posts the demo\'s series"',
        "",
        "[[tree]]",
        f"name = {json.dumps(TREE_NAME)}",
        f"url = {json.dumps(repository.resolve().as_uri())}",
        f"branches = {json.dumps(branches)}",
        "poll_seconds = 30",
        # The demo is about its series; each head of the tree would be boots beside them.
        "heads_per_day = 0",
        "",
        "[[list]]",
        f"name = {json.dumps(LIST_NAME)}",
        f"url = {json.dumps(list_url)}",
        f"address = {json.dumps(LIST_ADDRESS)}",
        f"tree = {json.dumps(TREE_NAME)}",
        # Nobody else writes into the demo's archive.
        'proof = "archive"',
        # The sink is the only way out, so no person has to release the report.
        "moderated = false",
        "poll_seconds = 2",
        "",
    ]
    path = folder / "site.toml"
    path.write_text("\n".join(parts), encoding="utf-8")
    return path
