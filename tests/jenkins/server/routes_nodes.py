"""Paths below /computer."""

import json

from tests.jenkins.server import answers
from tests.jenkins.server.answers import Answer, AnswerError
from tests.jenkins.server.auth import CONNECT, DISCONNECT, NODE_CONFIGURE, NODE_CREATE, NODE_DELETE
from tests.jenkins.server.nodes import Mark, Node
from tests.jenkins.server.request import Request

_LAUNCH = (
    "<jnlp><application-desc><argument>{secret}</argument><argument>{name}</argument><argument>-webSocket</argument>"
    "<argument>-workDir</argument><argument>{remote_fs}</argument><argument>-internalDir</argument>"
    "<argument>remoting</argument><argument>-url</argument><argument>{url}/</argument></application-desc></jnlp>"
)


def create(request: Request) -> Answer:
    request.need_post()
    request.need(NODE_CREATE)
    form = request.form()
    try:
        given = json.loads(form["json"])
        name = form["name"]
        node = Node(
            request.controller,
            name,
            words=given["labelString"].split(),
            executors=int(given["numExecutors"]),
            exclusive=given["mode"] == "EXCLUSIVE",
            description=given["nodeDescription"],
            remote_fs=given["remoteFS"],
        )
    except (KeyError, ValueError) as error:
        raise AnswerError(answers.error(f"bad form: {error}")) from error
    if name in request.controller.nodes:
        raise AnswerError(answers.rejected(f"Agent called  {name}  already exists"))
    request.controller.nodes[name] = node
    return answers.redirect("/computer/")


def show(request: Request, name: str, form: str) -> Answer:
    return request.show(request.node(name), form, "slaveComputer")


def config(request: Request, name: str) -> Answer:
    node = request.node(name)
    request.need(NODE_CONFIGURE)
    if request.method == "GET":
        return answers.xml_file(node.config())
    try:
        node.configure(request.body.decode())
    except ValueError as error:
        raise AnswerError(answers.error(str(error))) from error
    return Answer(200)


def launch_file(request: Request, name: str) -> Answer:
    node = request.node(name)
    request.need(CONNECT)
    text = _LAUNCH.format(secret=node.secret, name=name, remote_fs=node.remote_fs, url=request.controller.url)
    return answers.xml_file(text, "application/x-java-jnlp-file")


def toggle(request: Request, name: str) -> Answer:
    """A toggle: who wants a state has to read it first. Going offline and coming back need different permissions."""
    node = request.node(name)
    request.need_post()
    if node.mark is not None:
        request.need(CONNECT)
        node.mark = None
    else:
        request.need(DISCONNECT)
        node.mark = Mark(request.user, request.form().get("offlineMessage", ""), request.controller.now())
    return answers.redirect(f"/computer/{name}/")


def change_cause(request: Request, name: str) -> Answer:
    node = request.node(name)
    request.need_post()
    request.need(DISCONNECT)
    node.mark = Mark(request.user, request.form().get("offlineMessage", ""), request.controller.now())
    return answers.redirect(f"/computer/{name}/")


def disconnect(request: Request, name: str) -> Answer:
    """Closes the channel. A living agent is back a second later; builds on a frozen one end after a while."""
    node = request.node(name)
    request.need_post()
    request.need(DISCONNECT)
    timing = request.controller.timing
    if node.frozen_at is not None:
        request.controller.lose_agent(node, after=timing.disconnect_frozen, back_after=None)
    elif node.connected:
        request.controller.lose_agent(node, after=timing.agent_lost, back_after=timing.agent_back)
    return answers.redirect(f"/computer/{name}/")


def delete(request: Request, name: str) -> Answer:
    node = request.node(name)
    request.need_post()
    request.need(NODE_DELETE)
    request.controller.lose_agent(node, after=0, back_after=None)
    del request.controller.nodes[name]
    return answers.redirect("/computer/")
