"""What can go wrong between a client and the controller: on the wire and in answers."""

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tests.jenkins.server.answers import Answer

# html: a page with status 200. truncated: half a JSON text, whole by its length. half: the connection ends in the
# middle of the body. types: JSON of another shape. lost: done, but the answer never comes. hang: nothing is done and
# nothing comes. closed: the connection ends at once. Numbers: a proxy's page.
Wrong = Literal[
    "html", "truncated", "half", "types", "empty", "lost", "hang", "closed", "401", "403", "404", "500", "502", "503"
]
_HTML = b"<html><head><title>Welcome</title></head><body>Please sign in to the network</body></html>"


@dataclass
class Rule:
    """One wrong answer, for requests whose path `pattern` finds, `times` of them (None: until it is lifted)."""

    wrong: Wrong
    pattern: re.Pattern[str]
    times: int | None


@dataclass
class Wire:
    """The state of the wire; `lifted` wakes requests that hang."""

    delay: float = 0.0
    rules: list[Rule] = field(default_factory=list)
    # Changes the texts that people read (why an item waits), as another language or other quotes would.
    translate: Callable[[str], str] | None = None
    # What a controller that is not up yet answers to everything: 503, and 401 for a moment before its log-in is there.
    starting: Literal["", "401", "503"] = ""
    lifted: threading.Event = field(default_factory=threading.Event)

    def rule_for(self, method: str, path: str) -> Wrong | None:
        for rule in self.rules:
            if rule.pattern.search(f"{method} {path}"):
                if rule.times is not None:
                    rule.times -= 1
                    if rule.times <= 0:
                        self.rules.remove(rule)
                return rule.wrong
        return None


def spoil(answer: Answer, wrong: Wrong) -> Answer:
    """The answer as a client gets it; those that end the connection are the caller's."""
    if wrong == "html":
        return Answer(200, _HTML, {"Content-Type": "text/html"})
    if wrong == "truncated":
        return replace(answer, body=answer.body[: len(answer.body) // 2])
    if wrong == "types":
        return replace(answer, body=_other_types(answer.body))
    if wrong == "empty":
        return replace(answer, body=b"")
    if wrong.isdigit():
        return Answer(int(wrong), b"<html>proxy error</html>", {"Content-Type": "text/html"})
    return answer


def _other_types(body: bytes) -> bytes:
    try:
        return json.dumps(_swap(json.loads(body))).encode()
    except ValueError:
        return b"[]"


def _swap(value: Any) -> Any:
    """Lists become texts, texts numbers, numbers lists; mappings stay, so that the nonsense is inside."""
    if isinstance(value, dict):
        return {name: _swap(each) for name, each in value.items()}
    if isinstance(value, list):
        return "many"
    return 7 if isinstance(value, str) else ["x"]


def translated(answer: Answer, translate: Callable[[str], str]) -> Answer:
    """The same answer with each `why` and `offlineCauseReason` in other words."""
    try:
        value = json.loads(answer.body)
    except ValueError:
        return answer
    return replace(answer, body=json.dumps(_translate(value, translate), ensure_ascii=False).encode())


def _translate(value: Any, translate: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {
            name: translate(each) if name == "why" and isinstance(each, str) else _translate(each, translate)
            for name, each in value.items()
        }
    return [_translate(each, translate) for each in value] if isinstance(value, list) else value
