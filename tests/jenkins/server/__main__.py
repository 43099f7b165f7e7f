"""The server as a process of its own: python -m tests.jenkins.server --port 8081 --node zen3-01 --user dispatcher.

Prints one line of JSON with url, user and token when it listens, and ends with its standard input or by SIGTERM.
"""

import argparse
import json
import signal
import sys
import threading
from typing import Any

from tests.jenkins.server.server import JenkinsServer
from tests.jenkins.server.timing import RECORDED


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.jenkins.server", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--node", action="append", default=[], help="NAME or NAME=LABEL LABEL, connected at once")
    parser.add_argument("--user", default="dispatcher")
    parser.add_argument("--faster", type=float, default=1.0, help="how many times as fast as recorded")
    options = parser.parse_args()
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    threading.Thread(target=_wait_for_input, args=(over,), daemon=True).start()
    with JenkinsServer(port=options.port, timing=RECORDED.faster(options.faster), user=options.user) as server:
        server.site.testing = lambda what, query: _testing(server, what, query)
        for each in options.node:
            name, _, labels = each.partition("=")
            server.add_node(name, labels)
        tokens = {name: user.token for name, user in server.users.by_name.items()}
        said = {"url": server.url, "user": server.user, "token": server.token, "tokens": tokens}
        sys.stdout.write(f"{json.dumps(said)}\n")
        sys.stdout.flush()
        over.wait()


def _wait_for_input(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


def _testing(server: JenkinsServer, what: str, query: dict[str, str]) -> dict[str, Any]:
    """What a test in another process asks for or does, at /testing/...: outside of anything that Jenkins has."""
    if what == "requests":
        times = [each.at for each in server.requests if query.get("user", each.user) == each.user]
        return {"count": len(times), "times": times}
    if what == "job":
        server.add_job(query["name"], query.get("script", "#!/bin/sh\ntrue\n"), label=query.get("label", ""))
    elif what == "kill-agent":
        server.kill_agent(query["node"])
    elif what == "connect":
        server.connect(query["node"], {key: value for key, value in query.items() if key.isupper()})
    else:
        return {"error": f"unknown: {what}"}
    return {"done": what}


if __name__ == "__main__":
    main()
