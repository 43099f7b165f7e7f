import io
import json
import logging.config

import structlog
from django.test import Client

from server.core import logs


def test_log_line_is_json_with_process_and_bound_ids_and_without_secrets() -> None:
    config = logs.logging_config(level="INFO", process="worker")
    stream = io.StringIO()
    config["handlers"]["stderr"]["stream"] = stream
    logging.config.dictConfig(config)
    structlog.contextvars.bind_contextvars(trace="abc")
    structlog.stdlib.get_logger("tidemark.test").info("state_changed", id=7, token="tm_secret")
    structlog.contextvars.clear_contextvars()
    line = json.loads(stream.getvalue())
    assert (line["event"], line["process"], line["trace"], line["id"]) == ("state_changed", "worker", "abc", 7)
    assert line["token"] == "***"


def test_no_address_of_a_person_reaches_a_line() -> None:
    config = logs.logging_config(level="INFO", process="worker")
    stream = io.StringIO()
    config["handlers"]["stderr"]["stream"] = stream
    logging.config.dictConfig(config)
    said = "550 <a.person+x@example.org>: no such user"
    structlog.stdlib.get_logger("tidemark.test").info("mail_refused", error=said, message_id="1-2@example.org")
    logging.getLogger("django").error("to %s", "b@example.org")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["error"] == "550 <***@example.org>: no such user"
    assert first["message_id"] == "1-2@example.org"
    assert second["event"] == "to ***@example.org"


def test_answer_carries_the_request_id_it_was_given_unless_it_is_garbage() -> None:
    client = Client()
    assert client.get("/healthz", headers={"X-Request-Id": "abc-1"}).headers["X-Request-Id"] == "abc-1"
    given = client.get("/healthz", headers={"X-Request-Id": "a b\n"}).headers["X-Request-Id"]
    assert given.isalnum()
