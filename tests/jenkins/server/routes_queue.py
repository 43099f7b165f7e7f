"""Paths below /queue."""

from tests.jenkins.server import answers
from tests.jenkins.server.answers import Answer, AnswerError
from tests.jenkins.server.auth import CANCEL
from tests.jenkins.server.request import Request


def queue(request: Request, form: str) -> Answer:
    return request.show(request.controller.queue, form, "queue")


def item(request: Request, number: str, form: str) -> Answer:
    found = request.controller.queue.find(int(number))
    if found is None:
        raise AnswerError(answers.not_found())
    return request.show(found, form, "item")


def cancel(request: Request) -> Answer:
    """204 for an item that waits, 404 for an unknown one, 500 for one that became a build (which runs on)."""
    request.need_post()
    number = request.form().get("id", "")
    found = request.controller.queue.find(int(number)) if number.isdigit() else None
    if found is None:
        raise AnswerError(answers.not_found())
    request.need(CANCEL)
    if found.left_at is not None and not found.cancelled:
        raise AnswerError(answers.error(f"Could not cancel run for id {number}"))
    if found.left_at is None:
        request.controller.queue.leave(found, None)
    return Answer(204)
