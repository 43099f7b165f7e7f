"""Values out of the controller's answers, of which nothing is believed, and what can be wrong with a request to it."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

from server.lab.port import DispatchError


class JenkinsError(DispatchError):
    """Any of the following. `maybe_done` tells whether the request may have had its effect all the same."""

    def __init__(self, code: str, message: str, *, maybe_done: bool = False) -> None:
        super().__init__(code, message, permanent=False)
        self.maybe_done = maybe_done


class Unreachable(JenkinsError):  # noqa: N818 (answers are named by what is wrong)
    """No answer, not a whole one, or not in time."""

    def __init__(self, message: str, *, maybe_done: bool = True) -> None:
        super().__init__("jenkins-unreachable", message, maybe_done=maybe_done)


class Garbled(JenkinsError):  # noqa: N818 (as above)
    """An answer that no Jenkins gives: a proxy's page, half a JSON, a number that is a text."""

    def __init__(self, message: str) -> None:
        super().__init__("jenkins-garbled", message, maybe_done=True)


class TokenRefused(JenkinsError):  # noqa: N818 (as above)
    """401 by Jenkins itself, or no token to send: a person has to renew it, unless it is over in a moment."""

    def __init__(self, message: str) -> None:
        super().__init__("jenkins-token", message)


class Forbidden(JenkinsError):  # noqa: N818 (as above)
    """403; `permission` is the one that is missing, as Jenkins names it, or empty when it does not say."""

    def __init__(self, message: str, permission: str = "") -> None:
        super().__init__("jenkins-forbidden", message)
        self.permission = permission


class Missing(JenkinsError):  # noqa: N818 (as above)
    """404: not there, or this user may not know that it is."""

    def __init__(self, message: str) -> None:
        super().__init__("jenkins-missing", message)


class Rejected(JenkinsError):  # noqa: N818 (as above)
    """Any other status; `status` is its number. Only 4xx says for sure that nothing was done."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__("jenkins-rejected", message, maybe_done=status >= 500)  # noqa: PLR2004 (HTTP's own limit)
        self.status = status


class Crowded(JenkinsError):  # noqa: N818 (as above)
    """The rate limit gave no turn in time: nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__("jenkins-crowded", message)


# What the database's columns hold.
LARGEST_ID = 2**63 - 1
LARGEST_NUMBER = 2**31 - 1
# Milliseconds since 1970 of the year 2100: what lies after it is no time of a build.
_LARGEST_TIME = 4_102_444_800_000
LONGEST_TEXT = 2_000
LONGEST_NAME = 200
# A controller of a thousand nodes with all their builds in the queue has some tens of thousands.
_MOST_PARTS = 300_000
# Characters that a terminal or a page would obey, and halves of characters, which no database takes.
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str, longest: int = LONGEST_TEXT) -> str:
    """Text that can be stored and shown: at most so long, without control characters but tab and line end."""
    return _UNFIT.sub("�", text[:longest])


def parse_json(content: bytes, what: str) -> Any:
    """The parsed answer; raises Garbled. NaN and nesting without end are no JSON of Jenkins.

    An empty object is two bytes of an answer and a hundred in memory: their number is looked at before it is parsed.
    """
    if content.count(b"{") + content.count(b"[") > _MOST_PARTS:
        raise Garbled(f"{what}: more than {_MOST_PARTS} objects and lists")
    try:
        return json.loads(content.decode("utf-8"), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        reason = type(error).__name__ if isinstance(error, RecursionError) else str(error)
    raise Garbled(f"{what}: no JSON ({clean(reason, 200)}), it begins {beginning(content)}")


def beginning(content: bytes) -> str:
    """The first characters of an answer, for messages."""
    return repr(clean(content[:60].decode("utf-8", "replace")))


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")


class Item:
    """One object of an answer, read key by key; `place` says in messages where it stands."""

    def __init__(self, value: object, place: str) -> None:
        if not isinstance(value, dict):
            raise Garbled(f"{place}: {_shown(value)} is no object")
        self._value: Mapping[str, Any] = value
        self.place = place

    def has(self, key: str) -> bool:
        return self._value.get(key) is not None

    def raw(self, key: str) -> object:
        return self._value.get(key)

    def truth(self, key: str) -> bool:
        value = self._value.get(key)
        if not isinstance(value, bool):
            raise self._wrong(key, "neither true nor false")
        return value

    def number(self, key: str, largest: int = LARGEST_NUMBER) -> int:
        value = self._value.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= largest:
            raise self._wrong(key, f"no whole number from 0 to {largest}")
        return value

    def number_or_none(self, key: str, largest: int = LARGEST_NUMBER) -> int | None:
        return self.number(key, largest) if self.has(key) else None

    def text(self, key: str, longest: int = LONGEST_TEXT) -> str:
        """A text; null and absent are empty ones."""
        value = self._value.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._wrong(key, "no text")
        return clean(value, longest)

    def name(self, key: str) -> str:
        """A text that must be there."""
        value = self.text(key, LONGEST_NAME)
        if not value:
            raise self._wrong(key, "no name")
        return value

    def time(self, key: str) -> datetime | None:
        """Milliseconds since 1970; None where they are missing or 0."""
        value = self.number_or_none(key, _LARGEST_TIME)
        return datetime.fromtimestamp(value / 1000, UTC) if value else None

    def item(self, key: str) -> "Item":
        return Item(self._value.get(key), f"{self.place}.{key}")

    def items(self, key: str) -> list["Item"]:
        """The objects of a list that must be there."""
        values = self._value.get(key)
        if not isinstance(values, list):
            raise self._wrong(key, "no list")
        return [Item(value, f"{self.place}.{key}[{index}]") for index, value in enumerate(values)]

    def items_or_none(self, key: str) -> list["Item"]:
        """The objects of a list; absent and null are an empty one."""
        return self.items(key) if self.has(key) else []

    def _wrong(self, key: str, what: str) -> Garbled:
        return Garbled(f"{self.place}.{key}: {_shown(self._value.get(key))} is {what}")


def parameters_of(item: Item) -> dict[str, str]:
    """All parameters of a build or of an item of the queue that are texts; flags and files are none of ours."""
    found: dict[str, str] = {}
    for action in item.items_or_none("actions"):
        for parameter in action.items_or_none("parameters"):
            name = parameter.text("name", LONGEST_NAME)
            if name and isinstance(value := parameter.raw("value"), str):
                found[name] = clean(value)
    return found


def _shown(value: object) -> str:
    return "nothing" if value is None else clean(repr(value), 80)
