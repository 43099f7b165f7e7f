"""A server that speaks docs/agent-protocol.md from memory, for tests of the agent. Also a program: see main()."""

import argparse
import gzip
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PREFIX, ENROLMENTS = "/api/v1/agent/", "/api/v1/enrolments/"
TOKEN = "tm_000000_for-tests"  # opens nothing but this server


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    kind: str = "application/json"


@dataclass
class Lab:
    """What the server knows. Tests set `assignments` and read the rest."""

    assignments: dict[str, dict[str, Any]] = field(default_factory=dict)
    artifacts: dict[str, bytes] = field(default_factory=dict)
    holders: dict[str, str] = field(default_factory=dict)
    ended: dict[str, dict[str, Any]] = field(default_factory=dict)
    builds: dict[str, dict[str, Any]] = field(default_factory=dict)
    boots: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    encodings: list[str] = field(default_factory=list)
    heartbeats: list[dict[str, Any]] = field(default_factory=list)
    hellos: list[dict[str, Any]] = field(default_factory=list)
    arrivals: list[dict[str, Any]] = field(default_factory=list)
    claims: list[dict[str, Any]] = field(default_factory=list)
    # The next token, once it is due; the old one is taken until this one was used.
    next_token: str = ""
    # What hosts that ask are given, one after the other, and what they said.
    offers: list[dict[str, Any]] = field(default_factory=list)
    asks: list[dict[str, Any]] = field(default_factory=list)
    # What hosts without a token are answered, and what they said.
    enrolments: list[Answer] = field(default_factory=list)
    codes: list[dict[str, Any]] = field(default_factory=list)
    unready: int = 0
    unwanted: set[str] = field(default_factory=set)
    failures_left: int = 0
    refusal: tuple[int, str] | None = None
    broken: set[str] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)


NOTHING = {"key": None, "inside": False, "reason": "nothing waits for it", "again_in": 0.1, "renew": False}


def ok(value: dict[str, Any], status: int = 200) -> Answer:
    return Answer(status, json.dumps(value).encode())


def problem(status: int, code: str) -> Answer:
    return Answer(status, json.dumps({"code": code, "detail": code}).encode(), "application/problem+json")


def session_of(key: str) -> str:
    """An attempt's key without its number: results belong to the session, not to the attempt."""
    return key.rpartition("-")[0]


def answer_attempt(  # noqa: PLR0911 (one line for each call of the protocol)
    lab: Lab, key: str, words: list[str], body: dict[str, Any]
) -> Answer:
    if key not in lab.assignments:
        return problem(404, "not-found")
    wanted = key not in lab.unwanted
    match words:
        case ["claim"]:
            return claim(lab, key, body)
        case ["arrive"]:
            return arrive(lab, key, body)
        case ["boots", position]:
            slot = (session_of(key), int(position))
            stored = slot not in lab.boots
            lab.boots.setdefault(slot, body)
            return ok({"stored": stored, "continue": wanted})
        case ["build"]:
            lab.builds.setdefault(session_of(key), body)
            return ok({})
    if lab.holders.get(key) != body["agent"]:
        return problem(409, "superseded")
    match words:
        case ["heartbeat"]:
            lab.heartbeats.append(body)
            return ok({"continue": wanted})
        case ["boots", _, "start"]:
            return ok({"continue": wanted})
        case ["end"]:
            lab.ended[key] = body
            return ok({})
    return problem(404, "not-found")


def arrive(lab: Lab, key: str, body: dict[str, Any]) -> Answer:
    """Ready after `unready` calls; another build than the first, or one after a claim, comes too late."""
    lab.arrivals.append(body)
    first = lab.arrivals[0]
    if key in lab.holders or (first.get("job"), first.get("number")) != (body.get("job"), body.get("number")):
        return problem(409, "superseded")
    lab.unready -= 1
    return ok({"ready": lab.unready < 0})


def claim(lab: Lab, key: str, body: dict[str, Any]) -> Answer:
    lab.claims.append(body)
    holder = lab.holders.setdefault(key, body["agent"])
    if holder != body["agent"] or key in lab.ended:
        return problem(409, "superseded")
    assignment = json.loads(json.dumps(lab.assignments[key]))
    if "session" in assignment:
        boots = assignment["session"]["boots"]
        assignment["session"]["boots"] = [b for b in boots if (session_of(key), b["position"]) not in lab.boots]
    return ok(assignment)


def answer_artifact(lab: Lab, method: str, sha256: str, data: bytes) -> Answer:
    if method == "GET":
        found = lab.artifacts.get(sha256)
        return problem(404, "not-found") if found is None else Answer(200, found, "application/octet-stream")
    if hashlib.sha256(data).hexdigest() != sha256:
        return problem(400, "hash-mismatch")
    is_new = sha256 not in lab.artifacts
    lab.artifacts[sha256] = data
    return ok({}, 201 if is_new else 200)


def answer_call(  # noqa: C901, PLR0911 (one line for each refusal)
    lab: Lab, method: str, path: str, token: str | None, data: bytes
) -> Answer:
    with lab.lock:
        if path == f"{PREFIX}hello" and lab.refusal is None and path.removeprefix(PREFIX) not in lab.broken:
            # Comes beside all other calls, so it is none of those whose order tests look at.
            lab.hellos.append(json.loads(data))
            return ok({"renew": bool(lab.next_token)})
        lab.calls.append((method, path))
        if path == ENROLMENTS and lab.enrolments:
            lab.codes.append(json.loads(data))
            return lab.enrolments.pop(0)
        if lab.failures_left > 0:
            lab.failures_left -= 1
            return problem(503, "unavailable")
        if lab.refusal is not None:
            return problem(*lab.refusal)
        if path.removeprefix(PREFIX) in lab.broken:
            return problem(500, "crashed")
        if token not in {f"Bearer {TOKEN}", f"Bearer {lab.next_token}"}:
            return problem(401, "not-authenticated")
        if not path.startswith(PREFIX):
            return problem(404, "not-found")
        match path.removeprefix(PREFIX).split("/"):
            case ["work"]:
                lab.asks.append(json.loads(data))
                return ok(lab.offers.pop(0) if lab.offers else NOTHING)
            case ["token"]:
                return ok({"token": lab.next_token, "expires_at": "2027-01-01T00:00:00Z"})
            case ["artifacts", sha256] if method in {"GET", "PUT"}:
                return answer_artifact(lab, method, sha256, data)
            case ["attempts", key, *words] if method == "POST":
                return answer_attempt(lab, key, words, json.loads(data))
        return problem(404, "not-found")


def handler_for(lab: Lab) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            lab.encodings.append(self.headers.get("Content-Encoding", ""))
            if lab.encodings[-1] == "gzip":
                data = gzip.decompress(data)
            answer = answer_call(lab, self.command, self.path, self.headers.get("Authorization"), data)
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("Accept-Encoding", "gzip")
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = do_PUT = answer  # noqa: N815 (http.server's names)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (http.server's name)
            """Tests read `calls`."""

    return Handler


@contextmanager
def running_server(lab: Lab, port: int = 0) -> Iterator[str]:
    """The server's address while it runs."""
    server = ThreadingHTTPServer(("127.0.0.1", port), handler_for(lab))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    """Serve one assignment from a JSON file, with artifacts from a directory, until the attempt ends; print results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("assignment", type=Path)
    parser.add_argument("artifacts", type=Path)
    parser.add_argument("--port", type=int, default=8999)
    options = parser.parse_args()
    assignment = json.loads(options.assignment.read_text())
    lab = Lab(assignments={assignment["key"]: assignment})
    lab.artifacts = {hashlib.sha256(f.read_bytes()).hexdigest(): f.read_bytes() for f in options.artifacts.iterdir()}
    with running_server(lab, options.port):
        while assignment["key"] not in lab.ended:
            time.sleep(0.05)
    results = {"boots": [lab.boots[slot] for slot in sorted(lab.boots)], "builds": lab.builds, "end": lab.ended}
    print(json.dumps(results, indent=1))  # noqa: T201 (the program's output)
    for sha256, data in lab.artifacts.items():
        (options.artifacts / sha256).write_bytes(data)


if __name__ == "__main__":
    main()
