"""One request as the routes see it."""

from dataclasses import dataclass
from urllib.parse import parse_qs

from tests.jenkins.server import answers
from tests.jenkins.server.answers import Answer, AnswerError
from tests.jenkins.server.auth import ITEM_READ, Login
from tests.jenkins.server.controller import Controller
from tests.jenkins.server.jobs import Job
from tests.jenkins.server.nodes import Node
from tests.jenkins.server.tree import Exported, TreeError, parse, project, whole
from tests.jenkins.server.xml import XPathError, document, search


@dataclass(frozen=True)
class Request:
    """`path` is unquoted, `query` and `form` keep the first value of each name."""

    controller: Controller
    method: str
    path: str
    query: dict[str, str]
    body: bytes
    content_type: str
    login: Login

    @property
    def user(self) -> str:
        return self.login.user.name

    def form(self) -> dict[str, str]:
        """Of the body and the URL, as Jenkins reads both."""
        body: dict[str, str] = {}
        if self.content_type.startswith("application/x-www-form-urlencoded"):
            body = first_values(self.body.decode("utf-8", "replace"))
        return {**self.query, **body}

    def may(self, permission: str) -> bool:
        return permission in self.login.user.permissions

    def need(self, permission: str) -> None:
        if not self.may(permission):
            raise AnswerError(answers.forbidden(self.user, permission))

    def need_post(self) -> None:
        if self.method != "POST":
            headers = {"Allow": "POST"}
            raise AnswerError(answers.page(405, "Form post required - Jenkins", headers=headers))

    def job(self, name: str) -> Job:
        """A job that the user may not read is as unknown as one that is not there."""
        job = self.controller.jobs.get(name)
        if job is None or not self.may(ITEM_READ):
            raise AnswerError(answers.not_found())
        return job

    def node(self, name: str) -> Node:
        node = self.controller.nodes.get(name)
        if node is None:
            raise AnswerError(answers.not_found())
        return node

    def show(self, thing: Exported, form: str, root: str = "found") -> Answer:
        """The api page of a thing in the form asked for: api/json or api/xml."""
        try:
            shown = project(thing, parse(self.query["tree"])) if "tree" in self.query else whole(thing)
        except TreeError as error:
            raise AnswerError(answers.error(str(error))) from error
        if form == "json":
            return answers.api(shown)
        if "xpath" not in self.query:
            return answers.xml_api(document(shown, root))
        try:
            return answers.xml_api(search(shown, self.query["xpath"], self.query.get("wrapper", root)))
        except XPathError as error:
            raise AnswerError(answers.error(str(error))) from error


def first_values(text: str) -> dict[str, str]:
    return {name: each[0] for name, each in parse_qs(text, keep_blank_values=True).items()}
