"""Every recorded exchange with a real controller: our client sends the same request and understands the answer."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from server.lab.dispatch.jenkins.configuration import AdminClient
from server.lab.dispatch.jenkins.http import Wire
from server.lab.dispatch.jenkins.values import JenkinsError
from tests.jenkins.recordings.calls import Entry, NotOurs, Ours
from tests.jenkins.recordings.files import ABSENT, FOLDER, Exchange, exchanges, scenarios
from tests.jenkins.recordings.places import PLACES
from tests.jenkins.recordings.replay import TOKEN, Replay
from tests.jenkins.recordings.rights import RIGHTS, SECRET
from tests.jenkins.recordings.runs import RUNS

TABLE: dict[str, list[Entry]] = RUNS | PLACES | RIGHTS
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=ABSENT)


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    with Replay().running() as server:
        yield server


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


def test_every_recording_has_its_table_and_every_exchange_its_line() -> None:
    assert {name: len(exchanges(name)) for name in scenarios()} == {name: len(lines) for name, lines in TABLE.items()}


def test_what_is_not_ours_says_why() -> None:
    others = [line for lines in TABLE.values() for line in lines if isinstance(line, NotOurs)]
    assert all(len(line.reason) > 10 for line in others)
    assert len(others) < sum(len(lines) for lines in TABLE.values()) / 5


@pytest.mark.parametrize("scenario", scenarios())
def test_client_sends_what_was_recorded_and_understands_the_answer(
    scenario: str, replay: Replay, token_file: Path
) -> None:
    for exchange, line in zip(exchanges(scenario), TABLE[scenario], strict=True):
        if isinstance(line, Ours):
            _played(exchange, line, replay, token_file)


def _played(exchange: Exchange, line: Ours, replay: Replay, token_file: Path) -> None:
    place = f"{exchange.scenario} {exchange.number}"
    replay.expect(_with_secret(exchange))
    client = AdminClient(Wire(replay.url, exchange.user, token_file, seconds=5))
    try:
        value = line.make(client, exchange)
    except JenkinsError as error:
        value = error
    finally:
        client.close()
    assert (place, replay.wrong) == (place, [])
    assert (place, replay.asked) == (place, 1)
    assert line.understood(value), f"{place}: {value!r}"
    recorded = exchange.response["headers"]
    assert client.head.session == recorded.get("X-Jenkins-Session", ""), place
    assert client.head.version == recorded.get("X-Jenkins", ""), place
    assert client.head.date is not None, place
    assert f"{client.head.date:%a, %d %b %Y %H:%M:%S GMT}" == recorded["Date"], place


def _with_secret(exchange: Exchange) -> Exchange:
    body = exchange.response.get("body")
    if not body or "<64-hex>" not in body:
        return exchange
    return replace(exchange, response={**exchange.response, "body": body.replace("<64-hex>", SECRET)})
