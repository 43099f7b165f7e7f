"""Recordings as they lie beside the repository."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[3].parent / "shared" / "jenkins-recordings"
ABSENT = "the recorded Jenkins exchanges are not beside this repository"


@dataclass(frozen=True)
class Exchange:
    """One request and its answer."""

    scenario: str
    number: int
    request: dict[str, Any]
    response: dict[str, Any]

    @property
    def user(self) -> str:
        return str(self.request["auth"] or "").removeprefix("basic:")

    def content(self) -> bytes:
        """The answer's body; JSON was stored parsed."""
        if "json" in self.response:
            return json.dumps(self.response["json"], ensure_ascii=False).encode()
        return str(self.response.get("body") or "").encode()


def scenarios() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def exchanges(scenario: str) -> list[Exchange]:
    data = json.loads((FOLDER / f"{scenario}.json").read_text(encoding="utf-8"))
    return [Exchange(scenario, n, one["request"], one["response"]) for n, one in enumerate(data["exchanges"])]
