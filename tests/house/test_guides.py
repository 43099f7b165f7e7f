"""Every command of the guides is one that there is.

Whole guides are run where they can be: README's and install-debian.md's by `make e2e-newcomer`, the way with containers
by `make e2e-compose`. Here each line of them all is read by the parser of the program that it calls, and by a shell.
"""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, get_commands, load_command_class
from tidemark_agent import __main__ as agent

from tests.house.sources import ROOT

GUIDES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_INDENTED = re.compile(r"^    (\S.*)$", re.MULTILINE)
# What ends a command inside a line.
_END = re.compile(r"\s*(?:;|\||&&|>|<|\s#|…|$)")
_PLACEHOLDER = re.compile(r"^[A-Z][A-Z-]*$")


def spoken(path: Path) -> Iterator[str]:
    """All that is set as code: blocks, with their continued lines joined, and spans."""
    text = path.read_text(encoding="utf-8")
    for _kind, block in _FENCE.findall(text):
        yield from re.sub(r"\\\n\s*", " ", block).splitlines()
    plain = _FENCE.sub("", text)
    yield from _INDENTED.findall(re.sub(r"\\\n\s*", " ", plain))
    yield from _SPAN.findall(plain)


def commands(program: str) -> list[tuple[str, list[str]]]:
    """(guide, words after the program) of each place that calls it."""
    found: dict[tuple[str, tuple[str, ...]], None] = {}
    for path in GUIDES:
        for line in spoken(path):
            for match in re.finditer(rf"(?:^|[\s/`(]){re.escape(program)} (?=[a-z])", line):
                words = _words(line[match.end() :])
                found[path.relative_to(ROOT).as_posix(), tuple(words)] = None
    return [(guide, list(words)) for guide, words in found]


def _words(rest: str) -> list[str]:
    """Up to what ends the command; a quotation that goes on may hold any of these."""
    for end in _END.finditer(rest):
        try:
            return shlex.split(rest[: end.start()])
        except ValueError:
            continue
    return [rest.split(maxsplit=1)[0], "..."]


def is_whole(words: list[str]) -> bool:
    """Whether the line says all of it: none of its words stands for what is left out."""
    return len(words) > 1 and not any("..." in word or word.startswith(("[", "{")) for word in words)


MANAGED = [*commands("manage.py"), *commands("tidemark-manage")]


@pytest.mark.parametrize(("guide", "words"), MANAGED, ids=lambda value: value if isinstance(value, str) else value[0])
def test_command_of_manage_py_is_there_and_takes_these_words(guide: str, words: list[str]) -> None:
    known = get_commands()
    assert words[0] in {*known, "help"}, guide
    if not is_whole(words) or words[0] == "help":
        return
    command = load_command_class(str(known[words[0]]), words[0])
    parser = command.create_parser("manage.py", words[0])
    said = ""
    try:
        parser.parse_args(["1" if _PLACEHOLDER.match(word) else word for word in words[1:]])
    except CommandError as error:
        said = str(error)
    # A mention of one option is no whole line.
    assert not said or "required" in said, f"{guide}: {words}: {said}"


def test_targets_of_make_are_there() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    said = [(guide, words[0]) for guide, words in commands("make")]
    # What follows "make" in Makefiles of kernels and in a list of packages.
    kernel = {"allnoconfig", "defconfig", "gcc", "modules", "no", "olddefconfig"}
    assert len(said) > 30
    assert {f"{guide}: {word}" for guide, word in said if word not in targets | kernel} == set()


AGENT = commands("tidemark-agent")


@pytest.mark.parametrize(("guide", "words"), AGENT, ids=lambda value: value if isinstance(value, str) else value[0])
def test_command_of_the_agent_is_there_and_takes_these_words(
    guide: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    status: object = 0
    try:
        agent._parser().parse_args(["1" if _PLACEHOLDER.match(word) else word for word in words])
    except SystemExit as error:
        status = error.code
    said = capsys.readouterr().err
    assert status == 0 or "are required" in said or not is_whole(words), f"{guide}: {words}: {said}"


def test_shell_blocks_are_read_by_a_shell() -> None:
    blocks = [
        (path.name, block)
        for path in GUIDES
        for kind, block in _FENCE.findall(path.read_text(encoding="utf-8"))
        if kind == "sh"
    ]
    assert len(blocks) > 10
    for name, block in blocks:
        done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name}: {done.stderr}\n{block}"


def test_secrets_of_the_containers_are_made_as_the_guide_says(tmp_path: Path) -> None:
    """The guide's own block, all but its end, which brings the containers up."""
    text = (ROOT / "docs/operations/install.md").read_text(encoding="utf-8")
    block = next(block for _kind, block in _FENCE.findall(text) if "redis-password" in block)
    script = block.partition("cd ../..")[0].replace("chown", "true")
    done = subprocess.run(["bash", "-eu"], input=script, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / ".local" / "secrets"
    made = {path.name: path.read_text() for path in folder.iterdir()}
    assert len(made["metrics-token"]) > 40
    assert made["redis-url"] == f"redis://:{made['redis-password']}@redis:6379/0"
    assert made["database-url"] == f"postgres://tidemark:{made['database-password']}@postgres/tidemark"
    assert all(re.fullmatch(r"11[0-9a-f]{32}", made[f"jenkins-{name}-token"]) for name in ("dispatcher", "lab-admin"))
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())
