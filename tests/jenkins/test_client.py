"""The client against answers that Jenkins gives, and against all that a broken or hostile one might."""

import gzip
import json
import socket
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from server.lab.dispatch.jenkins.answers import Canceled, QueueStage, Triggered
from server.lab.dispatch.jenkins.client import JenkinsClient
from server.lab.dispatch.jenkins.http import Wire
from server.lab.dispatch.jenkins.values import (
    Forbidden,
    Garbled,
    JenkinsError,
    Missing,
    Rejected,
    TokenRefused,
    Unreachable,
)
from tests.jenkins.odd_server import OddServer, Talk, answer, json_answer, odd_server, says, trickles

TOKEN = "11deadbeef-very-secret"
QUEUE = {
    "_class": "hudson.model.Queue",
    "items": [
        {
            "_class": "hudson.model.Queue$BuildableItem",
            "actions": [{"parameters": [{"name": "RUN_ID", "value": "build-7-1"}]}, {}],
            "id": 12,
            "inQueueSince": 1795171217114,
            "stuck": True,
            "task": {"_class": "hudson.model.FreeStyleProject", "name": "tidemark-build-b1"},
            "why": "Warten auf den nächsten freien Build-Prozessor",
        },
        {"_class": "org.example.Strange", "id": "x", "task": {"name": "somebody-else"}},
    ],
}
# On each page of Jenkins' own; those of its web server have none.
JENKINS = "X-Jenkins: 2.532"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@contextmanager
def connected(
    token_file: Path, *talks: Talk, seconds: float = 5.0, path: str = ""
) -> Iterator[tuple[JenkinsClient, OddServer]]:
    with odd_server(*talks) as server:
        wire = Wire(f"{server.url}{path}", "dispatcher", token_file, seconds=seconds)
        client = JenkinsClient(wire, prefix="tidemark-")
        try:
            yield client, server
        finally:
            client.close()


def queue_with(**fields: object) -> str:
    return json.dumps({"items": [{**QUEUE["items"][0], **fields}]})  # type: ignore[dict-item]


def test_queue_shows_our_items_in_any_language_and_leaves_others_alone(token_file: Path) -> None:
    with connected(token_file, says(json_answer(json.dumps(QUEUE)))) as (client, _):
        (item,) = client.queue()
    assert (item.id, item.run_id, item.stage, item.stuck) == (12, "build-7-1", QueueStage.BUILDABLE, True)
    assert item.why.startswith("Warten")


def test_trigger_names_the_item_and_says_when_it_was_there_already(token_file: Path) -> None:
    place = "Location: http://jenkins.test/ci/queue/item/7/"
    talks = says(answer("201 Created", place)), says(answer("303 See Other", place))
    with connected(token_file, *talks, path="/ci") as (client, server):
        assert client.trigger("tidemark-build-b1", "build-7-1") == Triggered(7, folded=False)
        assert client.trigger("tidemark-build-b1", "build-7-1") == Triggered(7, folded=True)
        assert server.connections == 1
        assert server.requests[0].startswith(
            b"POST /ci/job/tidemark-build-b1/buildWithParameters?delay=0sec HTTP/1.1\r\n"
        )
        assert server.requests[0].endswith(b"\r\n\r\nRUN_ID=build-7-1")


@pytest.mark.parametrize(
    ("status", "wanted"), [("204 No Content", Canceled.DONE), ("404 x", Canceled.UNKNOWN), ("500 x", Canceled.STARTED)]
)
def test_cancel_tells_three_endings(status: str, wanted: Canceled, token_file: Path) -> None:
    with connected(token_file, says(answer(status, JENKINS))) as (client, _):
        assert client.cancel_item(5) is wanted


def test_search_by_key_reads_xml_and_finds_nothing_in_nothing(token_file: Path) -> None:
    kind = "Content-Type: application/xml;charset=UTF-8"
    found = (
        b"<found><allBuild><action><parameter><name>RUN_ID</name><value>build-7-1</value></parameter></action>"
        b"<number>6</number><queueId>9</queueId></allBuild></found>"
    )
    talks = says(answer("200 OK", kind, body=found)), says(answer("200 OK", kind, body=b"<found/>"))
    with connected(token_file, *talks) as (client, _):
        assert client.find_builds("tidemark-build-b1", "build-7-1") == [(6, 9)]
        assert client.find_builds("tidemark-build-b1", "build-7-1") == []


def test_a_key_that_would_leave_its_quotes_is_not_searched_for(token_file: Path) -> None:
    with connected(token_file, says(b"")) as (client, _), pytest.raises(ValueError, match="no attempt key"):
        client.find_builds("job", "x' or '1'='1")


def test_names_are_quoted_and_cannot_leave_their_place(token_file: Path) -> None:
    with connected(token_file, says(answer("404 x", JENKINS))) as (client, server):
        with pytest.raises(Missing):
            client.build("../../computer/a?b#c", 1)
        assert b"GET /job/..%2F..%2Fcomputer%2Fa%3Fb%23c/1/api/json" in server.requests[0]
        with pytest.raises(ValueError, match="no name"):
            client.build("..", 1)


ENTITIES = b'<!DOCTYPE f [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><found>&b;</found>'
GARBLED = {
    "html with 200": answer("200 OK", "Content-Type: text/html", body=b"<html>log in"),
    "html said to be json": json_answer("<html>log in</html>"),
    "half a json": json_answer('{"items": [{"id": 1'),
    "empty": json_answer(""),
    "null": json_answer("null"),
    "a list": json_answer("[]"),
    "no items": json_answer("{}"),
    "items as a text": json_answer('{"items": "none"}'),
    "an item as a number": json_answer('{"items": [1]}'),
    "id as a text": json_answer(queue_with(id="12")),
    "huge id": json_answer(queue_with(id=2**63)),
    "id of ten thousand digits": json_answer('{"items": [{"id": ' + "9" * 10_000 + "}]}"),
    "negative id": json_answer(queue_with(id=-1)),
    "id as a fraction": json_answer(queue_with(id=1.5)),
    "id as a truth": json_answer(queue_with(id=True)),
    "stuck as a text": json_answer(queue_with(stuck="false")),
    "why as an object": json_answer(queue_with(why={})),
    "time of the year 60000": json_answer(queue_with(inQueueSince=10**18)),
    "unknown kind of item": json_answer(queue_with(_class="hudson.model.Queue$Other")),
    "not a number": json_answer('{"items": NaN}'),
    "nested without end": json_answer('{"items": ' + "[" * 100_000),
    "latin-1": json_answer('{"items": "ä"}'.encode("latin-1")),
    "gzip that nobody asked for": json_answer(gzip.compress(b" " * 2**20), "Content-Encoding: gzip"),
    "redirect to a login": answer("302 Found", "Location: /login?from=x", "Content-Type: application/json"),
    "not modified": answer("304 Not Modified"),
    "no content": answer("204 No Content"),
}


def test_objects_without_end_are_not_parsed(token_file: Path) -> None:
    said = json_answer('{"items": [' + "{}," * 400_000 + "{}]}")
    with connected(token_file, says(said)) as (client, _), pytest.raises(Garbled, match="more than 300000 objects"):
        client.queue()


@pytest.mark.parametrize("case", GARBLED)
def test_what_no_jenkins_answers_is_garbled_and_says_where(case: str, token_file: Path) -> None:
    with connected(token_file, says(GARBLED[case])) as (client, _), pytest.raises(Garbled) as caught:
        client.queue()
    assert "queue" in caught.value.message
    assert not caught.value.permanent


@pytest.mark.parametrize(
    "body", [ENTITIES, ENTITIES.decode().encode("utf-16"), b"<found>", b"", b"<found><allBuild/></found>", b"\xff<a/>"]
)
def test_xml_of_another_kind_is_garbled_and_no_entity_grows(body: bytes, token_file: Path) -> None:
    talk = says(answer("200 OK", "Content-Type: application/xml", body=body))
    with connected(token_file, talk) as (client, _), pytest.raises(Garbled):
        client.find_builds("job", "build-7-1")


@pytest.mark.parametrize(
    ("where", "status"),
    [
        ("http://jenkins.test/queue/item/7x/", "201 Created"),
        ("/login", "303 See Other"),
        ("/queue/item/7/", "302 Found"),
        (f"/queue/item/{2**63}/", "201 Created"),
        ("", "201 Created"),
        ("/queue/item/\N{ARABIC-INDIC DIGIT THREE}/", "201 Created"),
    ],
)
def test_a_trigger_without_an_item_is_garbled(where: str, status: str, token_file: Path) -> None:
    place = f"Location: {where}".encode().decode("latin-1")
    with connected(token_file, says(answer(status, place))) as (client, _), pytest.raises(Garbled):
        client.trigger("job", "build-7-1")


@pytest.mark.parametrize("where", ["/login", "http://other.test/login", "", "/securityRealm/commenceLogin?from=%2Fjob"])
def test_a_redirect_to_elsewhere_is_not_taken_for_success(where: str, token_file: Path) -> None:
    with connected(token_file, says(answer("302 Found", f"Location: {where}"))) as (client, _):
        for call in (client.toggle_offline, client.disconnect):
            with pytest.raises(Garbled):
                call("m1", "Tidemark: session-1-1")
        with pytest.raises(Garbled):
            client.stop("tidemark-build-b1", 1)


def test_nothing_is_followed(token_file: Path) -> None:
    with connected(token_file, says(answer("302 Found", "Location: /computer/m1/"))) as (client, server):
        client.toggle_offline("m1")
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("raw", "error", "words"),
    [
        (answer("401 Unauthorized", 'WWW-Authenticate: Basic realm="Jenkins"'), TokenRefused, "401"),
        (
            answer("403 Forbidden", JENKINS, "X-Required-Permission: hudson.model.Item.Build"),
            Forbidden,
            "hudson.model.Item.Build",
        ),
        (answer("403 Forbidden", body=b"No valid crumb was included"), Forbidden, "password"),
        (answer("404 Not Found", JENKINS), Missing, "404"),
        (answer("401 Unauthorized"), Garbled, "401"),
        (answer("401 Unauthorized", 'WWW-Authenticate: Basic realm="The lab\'s proxy"'), Garbled, "401"),
        (answer("403 Forbidden", body=b"<html>Blocked by policy</html>"), Garbled, "Blocked"),
        (answer("404 Not Found", body=b"no such host here"), Garbled, "no such host"),
        (answer("400 Bad", "X-Error: \x1b[31mno\x07"), Rejected, "400"),
        (answer("503 Starting"), Rejected, "503"),
        (answer("999 What"), Rejected, "999"),
    ],
)
def test_each_refusal_is_an_error_of_its_own(
    raw: bytes, error: type[JenkinsError], words: str, token_file: Path
) -> None:
    with connected(token_file, says(raw)) as (client, _), pytest.raises(error, match=words) as caught:
        client.queue()
    assert type(caught.value) is error
    assert "\x1b" not in caught.value.message


def test_an_answer_byte_by_byte_does_not_hold_a_round(token_file: Path) -> None:
    body = json_answer(json.dumps(QUEUE))
    for content in (body, body + b" " * 10_000):
        started = time.monotonic()
        slow = connected(token_file, trickles(content, 0.05), seconds=0.4)
        with slow as (client, _), pytest.raises(Unreachable, match=r"longer than 0\.4 s"):
            client.queue()
        assert time.monotonic() - started < 2


def test_a_second_request_on_a_kept_connection_is_bounded_as_well(token_file: Path) -> None:
    whole = json_answer(json.dumps(QUEUE))
    with connected(token_file, says(whole), trickles(whole, 0.05), says(whole), seconds=0.4) as (client, server):
        client.queue()
        with pytest.raises(Unreachable, match="longer"):
            client.queue()
        assert len(client.queue()) == 1
        assert server.connections == 2


def test_silence_and_half_an_answer_are_unreachable_and_may_have_been_done(token_file: Path) -> None:
    half = json_answer("x" * 100)[:-50]

    def hangs_up(connection: socket.socket) -> None:
        connection.sendall(half)
        connection.close()

    for talk in (hangs_up, lambda connection: connection.close(), says(b"SSH-2.0-OpenSSH\r\n")):
        with connected(token_file, talk, seconds=0.5) as (client, _), pytest.raises(Unreachable) as caught:
            client.queue()
        assert caught.value.maybe_done


def test_nobody_there_is_unreachable_and_surely_nothing_was_done(token_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = JenkinsClient(Wire(f"http://127.0.0.1:{port}", "dispatcher", token_file))
    with pytest.raises(Unreachable) as caught:
        client.trigger("job", "build-1-1")
    assert not caught.value.maybe_done


def test_an_answer_without_end_is_cut_off(token_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pours(connection: socket.socket) -> None:
        connection.sendall(answer("200 OK", "Content-Type: application/json", "Content-Length: 1000000000"))
        for _ in range(1000):
            connection.sendall(b" " * 2**20)

    started = time.monotonic()
    with connected(token_file, pours, seconds=10) as (client, _), pytest.raises(Garbled, match="longer than"):
        client.queue()
    assert time.monotonic() - started < 5


def test_texts_are_fit_to_be_stored_and_shown(token_file: Path) -> None:
    why = "a\x00b\x1b[2Jc\u202ed\ud800" + "x" * 10_000
    with connected(token_file, says(json_answer(queue_with(why=why)))) as (client, _):
        (item,) = client.queue()
    assert item.why.startswith("a�b�[2Jc�d�x")
    assert len(item.why) == 2000
    item.why.encode()


def test_a_text_with_half_a_character_in_json_is_mended(token_file: Path) -> None:
    with connected(token_file, says(json_answer(queue_with(why="x").replace('"x"', '"\\ud800"')))) as (client, _):
        assert client.queue()[0].why == "�"


def test_a_build_of_another_number_is_not_taken(token_file: Path) -> None:
    with connected(token_file, says(json_answer('{"building": true, "number": 4}'))) as (client, _):
        assert client.build("job", 4).building
        with pytest.raises(Garbled, match="asked for build 5 and got 4"):
            client.build("job", 5)


def test_a_log_that_begins_again_gives_no_text_twice(token_file: Path) -> None:
    said = answer("200 OK", "X-Text-Size: 924", "Content-Type: text/plain", body=b"all of it\r\n")
    with connected(token_file, says(said)) as (client, _):
        assert client.log("job", 1, 999).text == ""
        assert client.log("job", 1, 10).text == "all of it\n"


def test_head_tells_session_and_clock_and_survives_answers_without(token_file: Path) -> None:
    told = "X-Jenkins-Session: abc\x7f", "X-Jenkins: 2.532", "Date: Fri, 20 Nov 2026 10:39:36 GMT"
    talks = says(json_answer('{"items": []}', *told)), says(json_answer('{"items": []}', "Date: yesterday"))
    with connected(token_file, *talks) as (client, _):
        client.queue()
        assert (client.head.session, client.head.version) == ("abc�", "2.532")
        assert client.head.skew_seconds is not None
        client.queue()
        assert client.head.session == "abc�"
        assert client.head.date is None
        assert client.head.skew_seconds is None


def test_the_token_is_read_anew_at_each_request(token_file: Path) -> None:
    with connected(token_file, says(json_answer('{"items": []}'))) as (client, server):
        client.queue()
        token_file.write_text("renewed")
        client.queue()
    headers = [line for request in server.requests for line in request.split(b"\r\n") if b"uthorization" in line]
    assert len(set(headers)) == 2


@pytest.mark.parametrize("content", [b"", b" \n", b"two words", b"new\nline", b"\xff\xfe", b"x" * 5000, None])
def test_a_token_file_that_cannot_be_used_is_named_and_not_shown(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with connected(path, says(b"")) as (client, server), pytest.raises(TokenRefused, match=str(path)) as caught:
        client.queue()
    assert server.requests == []
    assert "xxx" not in caught.value.message


@pytest.mark.parametrize("raw", [b"HTTP/1.1 banana\r\n\r\n", answer("401 No"), json_answer("{"), b""])
def test_no_error_shows_the_token(raw: bytes, token_file: Path) -> None:
    with connected(token_file, says(raw), seconds=0.3) as (client, server):
        with pytest.raises(JenkinsError) as caught:
            client.trigger("job", "build-1-1")
        sent = next(line for line in server.requests[0].split(b"\r\n") if b"uthorization" in line).decode()
        error: BaseException | None = caught.value
        shown = repr(client) + "".join(traceback.TracebackException.from_exception(caught.value).format())
        while error is not None:
            shown += repr(error) + repr(vars(error))
            error = error.__cause__ or error.__context__
    assert TOKEN not in shown
    assert sent.split()[-1] not in shown
    assert caught.value.__context__ is None


@pytest.mark.parametrize("url", ["ftp://j", "jenkins.test", "http://u:p@j", "http://j/?a=b", "", "http://"])
def test_an_address_that_is_none_is_refused_before_anything_is_sent(url: str, token_file: Path) -> None:
    with pytest.raises(Unreachable, match="TIDEMARK_JENKINS_URL") as caught:
        JenkinsClient(Wire(url, "dispatcher", token_file))
    assert not caught.value.maybe_done


def test_no_cookie_is_kept(token_file: Path) -> None:
    with connected(token_file, says(json_answer('{"items": []}', "Set-Cookie: JSESSIONID=1; Path=/"))) as (
        client,
        server,
    ):
        client.queue()
        client.queue()
    assert not any(b"cookie" in request.lower() for request in server.requests)
