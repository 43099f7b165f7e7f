"""Which agent this is, and where its own files are: a zip archive or a directory."""

import zipfile
from importlib.resources.abc import Traversable
from pathlib import Path

NUMBER = "0.2.0"


def bundle_root() -> Traversable:
    """The directory, real or inside the zipapp, that holds `tidemark_agent` and `benchmarks`."""
    root = Path(__file__).parents[1]
    return zipfile.Path(str(root)) if root.is_file() else root


def agent_version() -> str:
    """NUMBER+HASH8 of the contents as the zipapp's maker wrote it; a source tree has no such file."""
    stamp = bundle_root() / "tidemark_agent" / "version.txt"
    return stamp.read_text(encoding="ascii").strip() if stamp.is_file() else f"{NUMBER}+source"
