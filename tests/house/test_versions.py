"""One version for all that is released together: the service, its agent, its client, and what the changelog says."""

import re
import tomllib

from django.conf import settings
from tidemark_agent.version import NUMBER

from demo.lab.replay import agents
from tests.house.sources import ROOT


def test_service_agent_client_and_changelog_have_one_version() -> None:
    projects = [
        tomllib.loads((ROOT / name).read_text(encoding="utf-8"))["project"]["version"]
        for name in ("pyproject.toml", "client/pyproject.toml")
    ]
    told = re.findall(r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {settings.VERSION, NUMBER, agents.VERSION, told[0], *projects} == {settings.VERSION}
