"""What lab admins copy from the documents works."""

import re
import tomllib
from dataclasses import fields
from pathlib import Path

from tidemark_agent.config import AgentConfig, BootConfig, BuildConfig, PowerConfig, config_of
from tidemark_agent.prepare import PrepareConfig

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs/operations/add-a-machine.md").read_text(encoding="utf-8")


def example() -> str:
    found = re.search(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    assert found
    return found[1].replace('sha256 = "..."', f'sha256 = "{"0" * 64}"')


def test_configuration_in_the_guide_is_one_that_the_agent_takes() -> None:
    config = config_of(tomllib.loads(example()))
    assert config.server == "https://tidemark.example.org"
    assert config.prepare.tolerate == {"boost"}
    assert config.programs["perf"] == Path("/opt/tidemark/perf")


def test_configuration_in_the_guide_names_every_key() -> None:
    named = set(re.findall(r"^(\w+) =", example(), re.MULTILINE))
    tables = set(re.findall(r"^\[(\w+)\]", example(), re.MULTILINE))
    known = {field.name for part in (AgentConfig, BootConfig, PrepareConfig) for field in fields(part)}
    # Pins are the hashes that stand beside the programs; builders and control hosts have a guide of their own.
    assert known - {"pins", "build", "power"} <= named | tables


def test_guide_of_builders_names_the_keys_of_builders_and_control_hosts() -> None:
    guide = (ROOT / "docs/operations/builders.md").read_text(encoding="utf-8")
    assert {"[build]", "[power]"} <= set(re.findall(r"^\[\w+\]", guide, re.MULTILINE))
    known = {field.name for part in (BuildConfig, PowerConfig) for field in fields(part)}
    assert known <= set(re.findall(r"^(\w+) =", guide, re.MULTILINE))


def test_units_that_the_guide_copies_are_there() -> None:
    for name in ("tidemark-agent.service", "tidemark-agent.path"):
        assert f"agents/systemd/{name}" in GUIDE
        assert (ROOT / "agents/systemd" / name).is_file()
