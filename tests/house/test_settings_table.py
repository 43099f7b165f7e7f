"""docs/operations/settings.md and the code name the same settings with the same defaults."""

import ast
import re
from collections.abc import Iterator

from tests.house.sources import ROOT, python_files

_ROW = re.compile(r"^\| `(TIDEMARK_\w+)` \| ([^|]*) \|", re.MULTILINE)
_NO_READERS = {"configured_address", "ImproperlyConfigured"}
# In words what the code works out, or leaves to a library.
_IN_WORDS = {
    "TIDEMARK_DATABASE_SECONDS": "web 15, workers 240, else 0",
    "TIDEMARK_AGENT_URL": "as `TIDEMARK_SITE_URL`",
    "TIDEMARK_DNS_SERVERS": "those of the host",
    "TIDEMARK_ARTIFACT_S3_BUCKET": "none",
    "TIDEMARK_ARTIFACT_S3_ENDPOINT": "that of the region",
}

# Secrets that only some sites need.
_MAY_LACK = {"TIDEMARK_SMTP_USER", "TIDEMARK_SMTP_PASSWORD"}


def _calls() -> Iterator[tuple[str, ast.Call]]:
    """Each call that reads a setting, with the setting's name."""
    for path in (ROOT / "server/settings.py", ROOT / "server/env.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            first = node.args[0] if isinstance(node, ast.Call) and node.args else None
            if not isinstance(node, ast.Call) or not isinstance(first, ast.Constant):
                continue
            if re.fullmatch(r"TIDEMARK_\w+", str(first.value)) and ast.unparse(node.func) not in _NO_READERS:
                yield str(first.value), node


def _default(name: str, call: ast.Call) -> str:
    if name in _IN_WORDS:
        return _IN_WORDS[name]
    if ast.unparse(call.func) == "secret":
        return "empty, *secret*" if name in _MAY_LACK else "none, *secret*"
    given = call.args[1] if len(call.args) > 1 else call.keywords[0].value
    return _written(given)


def _written(given: ast.expr) -> str:
    try:
        value = ast.literal_eval(given)
    except ValueError:
        # A path below the repository.
        parts = [node.value for node in ast.walk(given) if isinstance(node, ast.Constant)]
        value = "/".join(sorted(str(part) for part in parts))
    if isinstance(value, list):
        value = ",".join(value)
    if value is False:
        return "off"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`" if value != "" else "empty"


def _described() -> dict[str, str]:
    text = (ROOT / "docs/operations/settings.md").read_text(encoding="utf-8").partition("## The local stack")[0]
    return dict(_ROW.findall(text))


def test_table_tells_every_setting_with_its_default() -> None:
    told = _described()
    for name, call in _calls():
        # The file that the others may come from is told with the local stack, which writes it.
        if name != "TIDEMARK_ENV_FILE":
            assert (name, told.get(name)) == (name, _default(name, call))


def test_table_tells_nothing_that_no_code_reads() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in python_files("server", "workers"))
    assert {name for name in _described() if f'"{name}"' not in code} == set()
