from pathlib import Path

import pytest

from demo.processes import DemoError, require_sandbox


def program(folder: Path, text: str) -> dict[str, str]:
    """An environment in which bwrap does what `text` says."""
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return {"PATH": str(folder)}


def test_forbidden_namespaces_are_told_with_the_way_out(tmp_path: Path) -> None:
    environ = program(tmp_path, "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
    words = r"(?s)user namespaces \(bwrap: No permissions.*TIDEMARK_BUILD_SANDBOX=none"
    with pytest.raises(DemoError, match=words):
        require_sandbox(environ)


def test_missing_bwrap_is_told_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match=r"not installed.*TIDEMARK_BUILD_SANDBOX=none"):
        require_sandbox({"PATH": str(tmp_path)})


def test_operator_may_do_without_a_sandbox(tmp_path: Path) -> None:
    require_sandbox({**program(tmp_path, "exit 1"), "TIDEMARK_BUILD_SANDBOX": "none"})


def test_sandbox_that_works_is_not_spoken_of(tmp_path: Path) -> None:
    require_sandbox(program(tmp_path, 'for last; do :; done; [ "$last" = true ]'))
