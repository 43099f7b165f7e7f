"""Whatever the description of the API allows and forbids, asked of the real web server; what it may not answer, told.

    python -m bench.api --fuzz [--examples 180] [--seed N]

Each operation gets so many questions in each of four ways: its examples, the edges of its parameters, random ones, and
one after the other as answers lead on. People's operations are asked with a token that may do all, agents' ones with
an agent's. Fails where an answer is an error of the server, is not described, or takes what the description forbids.
"""

import argparse
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection

from bench.api.asking import web
from bench.api.site import make_site
from bench.api.values import Values
from bench.ingest.uploads import issue_agent_token
from server.core.access.people import issue_person_token
from server.core.models import PersonToken, Tries

_SERIES, _HEADS, _VALUES = 60, 30, 20_000
# It has no end.
_STREAM = "/api/v1/transitions/"
_AGENT = "^/api/v1/agent/"


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.api --fuzz")
    parser.add_argument("--examples", type=int, default=180, help="of each operation in each way")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="operations whose name holds this")
    return parser.parse_args(arguments)


def main(*arguments: str) -> None:
    chosen = options(arguments)
    logging.disable(logging.CRITICAL)
    settings.ALLOWED_HOSTS = ["*"]
    site = make_site(_SERIES, _HEADS)
    Values(site).grow(_VALUES, lambda line: print(line, file=sys.stderr))
    admin = User.objects.create_superuser("root")
    person = issue_person_token(admin, name="fuzz", scopes=PersonToken.Scope.values).secret
    with web() as served, _acts_without_end():
        codes = [
            _run(served.port, person, chosen, "--exclude-path-regex", _AGENT, "--exclude-path", _STREAM),
            _run(served.port, issue_agent_token(), chosen, "--include-path-regex", _AGENT),
        ]
    sys.exit(1 if any(codes) else 0)


@contextmanager
def _acts_without_end() -> Iterator[None]:
    """What counts the acts of a token begins anew all the time: nothing but refusals would be seen."""
    over = threading.Event()

    def forget() -> None:
        while not over.wait(0.5):
            Tries.objects.all().delete()
        connection.close()

    thread = threading.Thread(target=forget)
    thread.start()
    try:
        yield
        if not thread.is_alive():
            raise SystemExit("acts were counted after all: most were refused, and nothing was seen of them")
    finally:
        over.set()
        thread.join()


def _run(port: int, token: str, chosen: argparse.Namespace, *which: str) -> int:
    words = [str(Path(sys.executable).with_name("schemathesis")), "run", f"http://127.0.0.1:{port}/api/v1/schema/"]
    # That a name exists nowhere, or that a mail holds no patch, no description can tell: both are 400.
    words += ["--checks", "all", "--exclude-checks", "positive_data_acceptance"]
    words += ["--max-examples", str(chosen.examples), "--seed", str(chosen.seed), "--generation-database", "none"]
    words += ["--continue-on-failure", "--suppress-health-check", "all"]
    words += ["--header", f"Authorization: Bearer {token}", "--header", "Accept-Encoding: identity", *which]
    if chosen.only:
        words += ["--include-operation-id-regex", chosen.only]
    with tempfile.TemporaryDirectory() as where:
        return subprocess.run(words, cwd=where, env=os.environ, check=False).returncode
