"""What the requirements files pin is what an installation takes, today and when newer releases are out."""

import re
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
_PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?==", re.MULTILINE)


def test_extras_that_packages_ask_for_are_pinned_with_them() -> None:
    """A pin without the extra binds nothing: the newest release is fetched, for which there is no hash."""
    text = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8")
    pinned = {canonicalize_name(name): extras.replace(" ", "").split(",") for name, extras in _PIN.findall(text)}
    missing = [
        f"{name} needs {needed.name}[{extra}]"
        for name, own in pinned.items()
        for needed in map(Requirement, requires(name) or ())
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in own)
        for extra in needed.extras
        if extra not in pinned[canonicalize_name(needed.name)]
    ]
    assert len(pinned) > 100
    assert missing == []
