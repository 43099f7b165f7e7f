"""What the client makes of a service's answers: pages, errors, waiting, and hosts that are not the service."""

from collections.abc import Callable

import httpx2
import pytest
from tidemark import ApiError, Tidemark
from tidemark.api import TRIES
from tidemark.events import told
from tidemark.nouns import field

Answer = Callable[[httpx2.Request], httpx2.Response]


def service(answer: Answer, slept: list[float] | None = None) -> Tidemark:
    sleep = (lambda _: None) if slept is None else slept.append
    return Tidemark("http://lab.example", transport=httpx2.MockTransport(answer), sleep=sleep)


def test_rows_are_those_of_all_pages_and_the_first_question_is_asked_once() -> None:
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        if request.url.params.get("cursor") == "b":
            return httpx2.Response(200, json={"next": None, "results": [{"id": 1}]})
        following = "http://inside:8000/api/v1/findings/?cursor=b&kind=split"
        return httpx2.Response(200, json={"next": following, "results": [{"id": 3}, {"id": 2}]})

    assert [row["id"] for row in service(answer).rows("findings", {"kind": "split"})] == [3, 2, 1]
    # The service may know itself by another name than its users do.
    assert asked == [
        "http://lab.example/api/v1/findings/?kind=split",
        "http://lab.example/api/v1/findings/?cursor=b&kind=split",
    ]


def test_a_limit_asks_for_no_page_that_is_not_needed() -> None:
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url)
        return httpx2.Response(200, json={"next": str(request.url), "results": [{"id": 1}, {"id": 2}]})

    assert [row["id"] for row in service(answer).rows("findings", limit=3)] == [1, 2, 1]
    assert len(asked) == 2


def test_a_next_page_elsewhere_is_refused() -> None:
    page = {"next": "http://evil.example/steal?cursor=1", "results": [{"id": 1}]}
    rows = service(lambda _: httpx2.Response(200, json=page)).rows("findings")
    assert next(rows) == {"id": 1}
    with pytest.raises(ApiError, match="not of this service") as refused:
        next(rows)
    assert refused.value.code == "foreign-page"


def test_a_problem_says_what_and_where() -> None:
    problem = {"title": "The request does not have the expected form.", "code": "invalid", "status": 400}
    answer = httpx2.Response(400, json={**problem, "errors": {"knid": ["There is no such filter."]}})
    with pytest.raises(ApiError) as refused:
        service(lambda _: answer).get("findings")
    assert (refused.value.status, refused.value.code) == (400, "invalid")
    assert "knid: There is no such filter." in str(refused.value)


def test_who_is_busy_is_asked_again_when_it_says() -> None:
    answers = [httpx2.Response(503, headers={"Retry-After": "7"}), httpx2.Response(429), httpx2.Response(200, json={})]
    slept: list[float] = []
    assert service(lambda _: answers.pop(0), slept).get("queue") == {}
    assert slept == [7.0, 2.0]


def test_lines_are_rows_one_at_a_time_and_a_busy_service_is_asked_again() -> None:
    lines = b'{"id":1}\n{"id":2,"subject":"a\\u2028b"}\n'
    more = {"Link": '<http://inside:8000/api/v1/what-if/?cursor=b&format=ndjson>; rel="next"'}
    answers = [httpx2.Response(503), httpx2.Response(200, content=lines, headers=more), httpx2.Response(200)]
    slept: list[float] = []
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        return answers.pop(0)

    rows = service(answer, slept).lines("what-if", {"case": "x"})
    assert list(rows) == [{"id": 1}, {"id": 2, "subject": "a\u2028b"}]
    first = "http://lab.example/api/v1/what-if/?case=x&format=ndjson"
    assert asked == [first, first, "http://lab.example/api/v1/what-if/?cursor=b&format=ndjson"]
    assert slept == [2.0]
    problem = {"title": "There is no such row.", "code": "not-found", "status": 404}
    with pytest.raises(ApiError, match="no such row") as refused:
        list(service(lambda _: httpx2.Response(404, json=problem)).pieces("sessions/7/samples"))
    assert refused.value.status == 404


def test_nobody_waits_for_ever() -> None:
    slept: list[float] = []
    with pytest.raises(ApiError, match="answered 503"):
        service(lambda _: httpx2.Response(503, headers={"Retry-After": "86400"}), slept).get("queue")
    assert slept == [60.0] * (TRIES - 1)


@pytest.mark.parametrize(
    "answer",
    [
        httpx2.Response(200, text="<html>a proxy's page</html>"),
        httpx2.Response(302, headers={"Location": "http://evil.example/"}),
        httpx2.Response(404, json=["no problem"]),
    ],
)
def test_what_is_no_tidemark_is_told(answer: httpx2.Response) -> None:
    with pytest.raises(ApiError, match="no JSON of a Tidemark service"):
        service(lambda _: answer).get("findings")


def test_no_answer_is_told() -> None:
    def broken(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("connection refused", request=request)

    with pytest.raises(ApiError, match="connection refused") as refused:
        service(broken).get("findings")
    assert refused.value.code == "unreachable"


def test_pages_that_lead_to_themselves_end() -> None:
    def answer(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json={"next": "http://x/api/v1/findings/?cursor=a", "results": [{"id": 1}]})

    with pytest.raises(ApiError, match="read already"):
        list(service(answer).rows("findings"))


def test_token_is_shown_where_something_is_done_and_a_busy_service_is_told_again() -> None:
    shown: list[tuple[str, str]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        shown.append((request.method, request.headers.get("authorization", "")))
        if len(shown) == 1:
            return httpx2.Response(503, headers={"Retry-After": "1"})
        return httpx2.Response(202, json={"acted": True}, headers={"Location": "http://x/api/v1/sessions/"})

    own = Tidemark("http://lab.example", token="tmp_x", transport=httpx2.MockTransport(answer), sleep=lambda _: None)
    assert own.post("series/1/retest", {"reason": "x"}) == {"acted": True, "location": "http://x/api/v1/sessions/"}
    own.get("series/1")
    assert shown == [("POST", "Bearer tmp_x"), ("POST", "Bearer tmp_x"), ("GET", "")]


def test_answer_that_did_not_change_is_none() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.headers.get("if-none-match") == 'W/"a"':
            return httpx2.Response(304)
        return httpx2.Response(200, content=b"id\n7\n", headers={"ETag": 'W/"a"'})

    client = service(answer)
    found = client.newer("findings", {"format": "csv"})
    assert found == (b"id\n7\n", 'W/"a"')
    assert client.newer("findings", {"format": "csv"}, etag=found[1]) is None
    assert client.newer("findings", etag='W/"b"') == found
    problem = {"title": "No.", "code": "invalid", "status": 400}
    with pytest.raises(ApiError, match="No"):
        service(lambda _: httpx2.Response(400, json=problem)).newer("findings")


_STREAM = """retry: 3000

id: 7

: still here

id: 8
event: transition
data: {"subject": "session", "id": 41, "after": "done"}

id: 20
event: reset
data: {}

"""


def test_events_are_rows_with_their_number() -> None:
    rows = [row for row in told(_STREAM.splitlines()) if row["kind"]]
    assert rows == [
        {"event": "8", "kind": "transition", "subject": "session", "id": 41, "after": "done"},
        {"event": "20", "kind": "reset"},
    ]


def test_stream_that_breaks_goes_on_after_its_last_event() -> None:
    asked: list[str] = []
    slept: list[float] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url.query.decode()))
        if len(asked) == 2:
            raise httpx2.ReadError("reset by peer")
        return stream(_STREAM if len(asked) == 1 else _STREAM.replace("id: 8", "id: 21"))

    events = service(answer, slept).events({"subject": "session"})
    assert [next(events)["event"] for _ in range(3)] == ["8", "20", "21"]
    assert asked == ["subject=session", "subject=session&after=20", "subject=session&after=20"]
    assert len(slept) == 2


def stream(text: str = _STREAM) -> httpx2.Response:
    return httpx2.Response(200, text=text, headers={"Content-Type": "text/event-stream; charset=utf-8"})


@pytest.mark.parametrize(
    "answer",
    [httpx2.Response(200, html="<html>"), stream("data: <html>\n\n"), stream("data: 7\n\n")],
    ids=["a page", "no JSON", "no object"],
)
def test_what_is_no_stream_of_a_service_is_said(answer: httpx2.Response) -> None:
    with pytest.raises(ApiError) as raised:
        next(service(lambda _: answer).events())
    assert raised.value.code == "no-service"


def test_stream_that_never_comes_is_given_up_and_one_that_is_refused_at_once() -> None:
    def gone(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("no route")

    slept: list[float] = []
    with pytest.raises(ApiError, match="no route"):
        next(service(gone, slept).events())
    assert 60 < sum(slept) < 120, "a service may begin anew meanwhile"
    problem = httpx2.Response(400, json={"title": "No.", "code": "invalid", "status": 400})
    with pytest.raises(ApiError, match="No"):
        next(service(lambda _: problem).events({"subject": "x"}))


def test_stream_ends_with_its_seconds() -> None:
    assert list(service(lambda _: stream()).events(seconds=0.0)) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vector.zen3.ratio", 1.2),
        ("vector.zen4.ratio", None),
        ("machines.m1.state", "idle"),
        ("finding.kind", "split"),
        ("finding.kind.more", None),
        ("vector.ratio", None),
    ],
)
def test_column_is_found_in_what_lists_things_by_name(name: str, value: object) -> None:
    row = {
        "vector": [{"uarch": "haswell", "ratio": 0.8}, {"uarch": "zen3", "ratio": 1.2}, 7],
        "machines": [{"name": "m1", "state": "idle"}],
        "finding": {"kind": "split"},
    }
    assert field(row, name) == value
