"""`make audit`: known holes in the pinned packages, of Python and npm, as their registries tell them.

An index that does not tell is no clean bill: packages of which nothing was said are counted, and the exit status is 2.
A copy of the PyPA's advisory database (--advisories FOLDER) can be asked instead of the index, or besides. Exceptions,
each with its reason, are the table in docs/operations/audit.md.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parent.parent
_REQUIREMENTS = ("requirements.txt", "requirements-dev.txt", "requirements-embedded.txt")
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", re.MULTILINE)
_MODIFIED = re.compile(r"^modified: '?\"?(\d{4}-\d\d-\d\d)", re.MULTILINE)
_EXCEPTION = re.compile(r"^\| `([A-Za-z0-9-]+)` \|", re.MULTILINE)


@dataclass
class Audit:
    """What was asked: packages of which somebody told, those of which nobody did, and holes by their id."""

    told: set[str] = field(default_factory=set)
    untold: set[str] = field(default_factory=set)
    holes: dict[str, str] = field(default_factory=dict)

    def status(self, exceptions: Iterable[str]) -> int:
        if set(self.holes) - set(exceptions):
            return 1
        return 2 if self.untold - self.told or not self.told else 0


def pinned(text: str) -> dict[str, str]:
    return {canonicalize_name(name): version for name, version in _PINNED.findall(text)}


def exceptions(text: str) -> list[str]:
    """Ids in the first column of the table of docs/operations/audit.md."""
    return _EXCEPTION.findall(text)


def read_pip_audit(said: str, audit: Audit) -> None:
    for row in json.loads(said)["dependencies"]:
        name = canonicalize_name(row["name"])
        if "skip_reason" in row:
            audit.untold.add(name)
            continue
        audit.told.add(name)
        for hole in row["vulns"]:
            audit.holes[hole["id"]] = f"{name} {row['version']}: {', '.join(hole['aliases'])}"


def read_npm_audit(said: str, names: Iterable[str], audit: Audit) -> None:
    found = json.loads(said or "{}")
    if "vulnerabilities" not in found:
        audit.untold.update(f"npm {name}" for name in names)
        return
    audit.told.update(f"npm {name}" for name in names)
    for name, about in found["vulnerabilities"].items():
        for via in about["via"]:
            if isinstance(via, dict):
                audit.holes[str(via["url"]).rpartition("/")[2]] = f"npm {name}: {via['title']}"


def read_advisories(folder: Path, versions: Mapping[str, set[str]], audit: Audit) -> None:
    """Compare with the files `vulns/NAME/*.yaml` of the PyPA's database."""
    if not (folder / "vulns").is_dir():
        raise SystemExit(f"audit: {folder} has no folder vulns: it is no copy of the advisory database")
    for name, pins in versions.items():
        audit.told.add(name)
        for path in (folder / "vulns" / name).glob("*.yaml"):
            advisory = yaml.safe_load(path.read_text(encoding="utf-8"))
            if "withdrawn" in advisory:
                continue
            for pin in pins:
                if any(_is_in(entry, pin) for entry in advisory["affected"]):
                    audit.holes[advisory["id"]] = f"{name} {pin}: {', '.join(advisory.get('aliases', []))}"


def newest(folder: Path) -> str:
    """The day of the last change in the copy: what became known later, it does not tell."""
    texts = (path.read_text(encoding="utf-8") for path in (folder / "vulns").glob("*/*.yaml"))
    return max((found[1] for text in texts if (found := _MODIFIED.search(text))), default="nowhere known")


def _is_in(entry: Mapping[str, Any], pin: str) -> bool:
    if pin in entry.get("versions", []):
        return True
    return any(_in_range(span["events"], pin) for span in entry.get("ranges", []) if span["type"] == "ECOSYSTEM")


def _in_range(events: Iterable[Mapping[str, str]], pin: str) -> bool:
    inside = False
    for kind, version in sorted(_events(events), key=lambda event: event[1]):
        if version > Version(pin):
            break
        inside = kind == "introduced" or (kind == "last_affected" and version == Version(pin))
    return inside


def _events(events: Iterable[Mapping[str, str]]) -> Iterator[tuple[str, Version]]:
    for event in events:
        for kind, version in event.items():
            try:
                yield kind, Version(version)
            except InvalidVersion:
                continue


def ask_indexes(audit: Audit) -> None:
    tool = Path(sys.executable).with_name("pip-audit")
    for name in _REQUIREMENTS:
        words = ["-s", "pypi", "--disable-pip", "--require-hashes", "--format", "json", "--progress-spinner", "off"]
        done = subprocess.run([tool, *words, "-r", ROOT / name], capture_output=True, text=True, check=False)
        if not done.stdout.startswith("{"):
            raise SystemExit(f"audit: pip-audit of {name} failed: {done.stderr.strip()[-500:]}")
        read_pip_audit(done.stdout, audit)
    done = subprocess.run(["npm", "audit", "--json"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))["dependencies"]
    read_npm_audit(done.stdout, names, audit)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.audit", description=__doc__)
    parser.add_argument("--advisories", type=Path, help="a copy of the PyPA's advisory database")
    parser.add_argument("--offline", action="store_true", help="ask the copy alone")
    options = parser.parse_args()
    audit = Audit()
    if not options.offline:
        ask_indexes(audit)
    if options.advisories:
        versions: dict[str, set[str]] = {}
        for name in _REQUIREMENTS:
            for package, pin in pinned((ROOT / name).read_text(encoding="utf-8")).items():
                versions.setdefault(package, set()).add(pin)
        read_advisories(options.advisories, versions, audit)
        print(f"audit: the copy's newest advisory is of {newest(options.advisories)}")
    explained = exceptions((ROOT / "docs/operations/audit.md").read_text(encoding="utf-8"))
    for hole, about in sorted(audit.holes.items()):
        print(f"{hole}: {about}{' (explained in docs/operations/audit.md)' if hole in explained else ''}")
    untold = sorted(audit.untold - audit.told)
    print(
        f"audit: {len(audit.told)} packages told of, {len(audit.holes)} known holes, {len(untold)} of which nobody told"
    )
    if untold:
        print(
            f"audit: nobody told of {', '.join(untold)}: ask where the index gives advisories, or --advisories FOLDER"
        )
    return audit.status(explained)


if __name__ == "__main__":
    sys.exit(main())
