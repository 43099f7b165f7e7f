"""Write the agent as a zipapp: `python3 scripts/build_agent.py OUT`. Same sources, same Python: same bytes."""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

AGENTS = Path(__file__).resolve().parents[1] / "agents"
_MAIN = "import sys\nfrom tidemark_agent.__main__ import main\nsys.exit(main())\n"
_SUFFIXES = {".py", ".sh", ".toml", ".c", ".h", ".md"}
# The oldest time that a zip archive can hold.
_DATE = (1980, 1, 1, 0, 0, 0)


def agent_files(root: Path = AGENTS) -> dict[str, bytes]:
    """Every file that the agent needs, by its path in the archive."""
    files = {"__main__.py": _MAIN.encode()}
    for part in ("tidemark_agent", "benchmarks"):
        for path in sorted((root / part).rglob("*")):
            if path.is_file() and path.suffix in _SUFFIXES:
                files[path.relative_to(root).as_posix()] = path.read_bytes()
    return files


def build_agent(out: Path, root: Path = AGENTS) -> str:
    """Write the archive to `out`, whole or not at all; returns the agent's version."""
    files = agent_files(root)
    total = hashlib.sha256()
    for name in sorted(files):
        total.update(name.encode() + b"\0" + hashlib.sha256(files[name]).hexdigest().encode() + b"\0")
    version = f"{_number(files)}+{total.hexdigest()[:8]}"
    files["tidemark_agent/version.txt"] = f"{version}\n".encode()
    files.update(_compiled(files))
    partial = out.with_name(f"{out.name}.partial")
    with partial.open("wb") as stream:
        stream.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(files):
                info = zipfile.ZipInfo(name, date_time=_DATE)
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = 0o644 << 16
                archive.writestr(info, files[name])
    partial.chmod(0o755)
    partial.replace(out)
    return version


def _compiled(files: dict[str, bytes]) -> dict[str, bytes]:
    """The agent's modules for this version of Python; any other one takes their sources, half a second later.

    By a process of its own: what else a process has loaded shows in the bytes.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, content in files.items():
            if path.startswith("tidemark_agent/") and path.endswith(".py"):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)
        words = ["-m", "compileall", "-q", "-b", "--invalidation-mode", "unchecked-hash", "-s", name, name]
        environment = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        subprocess.run([sys.executable, "-I", *words], check=True, env=environment)
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.pyc"))}


def _number(files: dict[str, bytes]) -> str:
    for line in files["tidemark_agent/version.py"].decode().splitlines():
        if line.startswith("NUMBER = "):
            return line.split('"')[1]
    raise SystemExit("tidemark_agent/version.py has no NUMBER")


if __name__ == "__main__":
    if len(sys.argv) != 2:  # noqa: PLR2004 (its own name and OUT)
        sys.exit("usage: python3 scripts/build_agent.py OUT")
    print(build_agent(Path(sys.argv[1])))
