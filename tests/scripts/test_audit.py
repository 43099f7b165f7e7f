"""What `make audit` makes of the answers, and when it says that all is well."""

import json
from pathlib import Path

import pytest

from scripts.audit import Audit, exceptions, newest, pinned, read_advisories, read_npm_audit, read_pip_audit

ADVISORY = """\
id: PYSEC-1
modified: 2026-08-07T17:22:10.804411Z
aliases: [CVE-1]
affected:
- package: {ecosystem: PyPI, name: django}
  ranges:
  - type: ECOSYSTEM
    events:
    - introduced: "5.0"
    - fixed: 5.0.8
    - introduced: "4.2"
    - fixed: 4.2.15
  versions: ["5.0.1.post1"]
"""


def test_silence_of_an_index_is_no_clean_bill() -> None:
    audit = Audit()
    read_pip_audit(json.dumps({"dependencies": [{"name": "Six", "skip_reason": "not found"}]}), audit)
    assert (audit.status([]), audit.untold) == (2, {"six"})
    read_pip_audit(json.dumps({"dependencies": [{"name": "six", "version": "1", "vulns": []}]}), audit)
    assert audit.status([]) == 0


def test_nothing_asked_is_not_clean_either() -> None:
    assert Audit().status([]) == 2


def test_hole_counts_unless_it_is_explained() -> None:
    audit = Audit()
    row = {"name": "six", "version": "1", "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"]}]}
    read_pip_audit(json.dumps({"dependencies": [row]}), audit)
    assert audit.status([]) == 1
    assert audit.status(exceptions("| id | why |\n|---|---|\n| `PYSEC-1` | not reached |\n")) == 0


def test_npm_that_refuses_the_question_is_told_from_one_that_knows_of_nothing() -> None:
    audit = Audit()
    read_npm_audit('{"error": {"code": "EAUDIT"}}', ["uplot"], audit)
    assert audit.status([]) == 2
    read_npm_audit('{"vulnerabilities": {}}', ["uplot"], audit)
    assert audit.status([]) == 0
    hole = {"url": "https://github.com/advisories/GHSA-1", "title": "bad"}
    read_npm_audit(json.dumps({"vulnerabilities": {"uplot": {"via": [hole]}}}), ["uplot"], audit)
    assert audit.holes == {"GHSA-1": "npm uplot: bad"}


@pytest.mark.parametrize(
    ("version", "bad"),
    [("4.1", False), ("4.2", True), ("4.2.14", True), ("4.2.15", False), ("5.0.7", True), ("5.0.8", False),
     ("5.0.1.post1", True), ("6.0", False)],
)  # fmt: skip
def test_copy_of_the_database_is_compared_by_version(tmp_path: Path, version: str, *, bad: bool) -> None:
    folder = tmp_path / "vulns" / "django"
    folder.mkdir(parents=True)
    (folder / "PYSEC-1.yaml").write_text(ADVISORY)
    audit = Audit()
    read_advisories(tmp_path, {"django": {version}, "six": {"1"}}, audit)
    assert bool(audit.holes) == bad
    assert audit.told == {"django", "six"}
    assert newest(tmp_path) == "2026-08-07"


def test_pins_are_read_with_extras_and_without_hashes() -> None:
    text = "coverage[toml]==7.1 \\\n    --hash=sha256:aa\ntyping_Extensions==4.2 ; python_version < '3.13' \\\n"
    assert pinned(text) == {"coverage": "7.1", "typing-extensions": "4.2"}
