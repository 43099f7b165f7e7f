"""What operators read names what there is."""

import re

from tests.house.sources import ROOT, python_files

_SETTING = re.compile(r"TIDEMARK_[A-Z_]*[A-Z]")


def test_every_described_setting_is_read_somewhere() -> None:
    described = set(_SETTING.findall((ROOT / "docs/operations/settings.md").read_text(encoding="utf-8")))
    code = "\n".join(path.read_text(encoding="utf-8") for path in python_files("server", "demo", "scripts", "agents"))
    assert {name for name in described if name not in code} == set()


def test_readme_has_no_placeholder_left() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^[ \t]*[A-Z]+(?:_[A-Z]+)+[ \t]*$", text, re.MULTILINE) == []


def test_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", text, re.MULTILINE))
    assert {"help", "setup", "demo", "stop", "test", "check", "lint", "format", "clean"} <= targets
    assert targets == set(re.findall(r"^([a-z0-9-]+):.*## ", text, re.MULTILINE))
