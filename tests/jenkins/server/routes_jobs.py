"""Paths below /job, and the making of jobs."""

import re

from tests.jenkins.server import answers, parameters
from tests.jenkins.server.answers import Answer, AnswerError
from tests.jenkins.server.auth import BUILD, CANCEL, CONFIGURE, CREATE, DELETE
from tests.jenkins.server.builds import Build
from tests.jenkins.server.jobs import Job, make
from tests.jenkins.server.request import Request

_DELAY = re.compile(r"(\d+)\s*(sec|s)?")


def create(request: Request) -> Answer:
    request.need_post()
    request.need(CREATE)
    name = request.query.get("name", "")
    if name in request.controller.jobs:
        raise AnswerError(answers.rejected(f"A job already exists with the name  {name} "))
    try:
        request.controller.jobs[name] = make(request.controller, name, request.body.decode())
    except ValueError as error:
        raise AnswerError(answers.error(str(error))) from error
    return Answer(200)


def show(request: Request, name: str, form: str) -> Answer:
    return request.show(request.job(name), form, "freeStyleProject")


def config(request: Request, name: str) -> Answer:
    job = request.job(name)
    request.need(CONFIGURE)
    if request.method == "GET":
        return answers.xml_file(job.xml)
    try:
        job.configure(request.body.decode())
    except ValueError as error:
        raise AnswerError(answers.error(str(error))) from error
    return Answer(200)


def delete(request: Request, name: str) -> Answer:
    job = request.job(name)
    request.need_post()
    request.need(DELETE)
    request.controller.delete_job(job, request.user)
    return answers.redirect("/")


def trigger(request: Request, name: str) -> Answer:
    """201 for a new item, 303 for one that was folded into an item that still waits; 500 for a bad choice."""
    job = request.job(name)
    request.need_post()
    request.need(BUILD)
    if job.disabled:
        raise AnswerError(answers.not_buildable(name, request.path))
    if not job.definitions:
        raise AnswerError(answers.error(f"{name} is not parameterized"))
    form = request.form()
    try:
        values = parameters.values(job.definitions, form)
    except parameters.BadChoiceError as error:
        raise AnswerError(answers.error(f"Illegal choice for parameter {error}")) from error
    return _schedule(request, job, values)


def build_without_parameters(request: Request, name: str) -> Answer:
    job = request.job(name)
    request.need_post()
    request.need(BUILD)
    if job.definitions:
        raise AnswerError(answers.jetty(400, "Nothing is submitted", request.path))
    return _schedule(request, job, {})


def _schedule(request: Request, job: Job, values: dict[str, str]) -> Answer:
    delay = _DELAY.fullmatch(request.query.get("delay", ""))
    seconds = float(delay[1]) if delay else request.controller.timing.quiet_period
    item, folded = request.controller.queue.add(job, values, request.user, seconds)
    location = f"{request.controller.url}/queue/item/{item.id}/"
    return answers.redirect(location, 303 if folded else 201)


def show_build(request: Request, name: str, number: str, form: str) -> Answer:
    return request.show(_build(request, name, number), form, "freeStyleBuild")


def stop(request: Request, name: str, number: str) -> Answer:
    """302 whatever it does: nothing to a build that is over or whose agent is frozen."""
    build = _build(request, name, number)
    request.need_post()
    request.need(CANCEL)
    request.controller.stop(build, request.user)
    return answers.redirect(f"/job/{name}/{number}/")


def console(request: Request, name: str, number: str) -> Answer:
    return answers.plain(_build(request, name, number).console.clean())


def progressive(request: Request, name: str, number: str) -> Answer:
    build = _build(request, name, number)
    start = request.query.get("start", "0")
    piece, size = build.console.piece(int(start) if start.isdigit() else 0)
    more = {"X-More-Data": "true"} if build.building else {}
    return answers.plain(piece, {"X-Text-Size": str(size), **more})


def artifact(request: Request, name: str, number: str, path: str) -> Answer:
    build = _build(request, name, number)
    file = next((each for each in build.artifacts() if str(each) == path), None)
    if file is None:
        raise AnswerError(answers.not_found())
    kind = "application/json" if file.suffix == ".json" else "application/octet-stream"
    return Answer(200, (build.folder / file).read_bytes(), {"Content-Type": kind, "Accept-Ranges": "bytes"})


def _build(request: Request, name: str, number: str) -> Build:
    build = request.job(name).find(int(number))
    if build is None:
        raise AnswerError(answers.not_found())
    return build
