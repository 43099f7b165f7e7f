"""Answers as Jenkins forms them: which headers come with what, as recorded."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.jenkins.server.controller import VERSION

_HTML = "text/html;charset=utf-8"
_JETTY = """<html>
<head>
<meta http-equiv="Content-Type" content="text/html;charset=ISO-8859-1"/>
<title>Error {status} {message}</title>
</head>
<body><h2>HTTP ERROR {status} {message}</h2>
<table>
<tr><th>URI:</th><td>{path}</td></tr>
<tr><th>STATUS:</th><td>{status}</td></tr>
<tr><th>MESSAGE:</th><td>{message}</td></tr>
<tr><th>SERVLET:</th><td>Stapler</td></tr>
</table>
<hr/><a href="https://jetty.org/">Powered by Jetty:// 12.0.25</a><hr/>

</body>
</html>
"""
_PAGE = """
  <!DOCTYPE html><html><head data-crumb-header="Jenkins-Crumb"><title>{title}</title></head>
  <body><h1>{title}</h1><p>{text}</p></body></html>
"""


@dataclass(frozen=True)
class Answer:
    """One response; `versioned` answers carry X-Jenkins and X-Jenkins-Session, others do not."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    versioned: bool = False

    def all_headers(self, session: str) -> dict[str, str]:
        own = {"X-Jenkins": VERSION, "X-Jenkins-Session": session} if self.versioned else {}
        return {"Vary": "Accept-Encoding", **own, **self.headers}


class AnswerError(Exception):
    """An answer that ends a request early."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def api(value: Mapping[str, Any]) -> Answer:
    headers = {"X-Frame-Options": "deny", "Content-Type": "application/json;charset=utf-8"}
    return Answer(200, json.dumps(value, ensure_ascii=False).encode(), headers, versioned=True)


def xml_api(text: str) -> Answer:
    headers = {"X-Frame-Options": "deny", "Content-Type": "application/xml;charset=UTF-8"}
    return Answer(200, text.encode(), headers, versioned=True)


def xml_file(text: str, kind: str = "application/xml") -> Answer:
    return Answer(200, text.encode(), {"Content-Type": kind})


def plain(body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(200, body, {"Content-Type": "text/plain;charset=utf-8", **(headers or {})})


def redirect(location: str, status: int = 302) -> Answer:
    return Answer(status, b"", {"Location": location})


def page(status: int, title: str, text: str = "", headers: Mapping[str, str] | None = None) -> Answer:
    """A page of Jenkins' own, in its frame."""
    body = _PAGE.format(title=title, text=text or title).encode()
    return Answer(status, body, {"Content-Type": _HTML, "X-Hudson": "1.395", **(headers or {})}, versioned=True)


def not_found() -> Answer:
    return page(404, "Not Found - Jenkins")


def error(text: str) -> Answer:
    return page(500, "Jenkins - Jenkins", text)


def rejected(text: str) -> Answer:
    return page(400, "Jenkins - Jenkins", text, {"X-Error": text})


def jetty(status: int, message: str, path: str, headers: Mapping[str, str] | None = None) -> Answer:
    """A page of the web server below Jenkins: without Jenkins' headers."""
    body = _JETTY.format(status=status, message=message, path=path).encode()
    return Answer(status, body, {"Content-Type": "text/html;charset=iso-8859-1", **(headers or {})})


def unauthorized(path: str) -> Answer:
    return jetty(401, "Unauthorized", path, {"WWW-Authenticate": 'Basic realm="Jenkins"'})


def starting() -> Answer:
    """While the controller loads what it has on its disk."""
    return Answer(503, b"<html><body>Jenkins is getting ready to work</body></html>", {"Content-Type": _HTML})


def no_crumb(path: str) -> Answer:
    return jetty(403, "No valid crumb was included in the request", path)


def not_buildable(job: str, path: str) -> Answer:
    """A trigger of a job that somebody disabled."""
    return jetty(409, f"{job} is not buildable", path)


def nobody(path: str) -> Answer:
    text = f"<html><head><meta http-equiv='refresh' content='1;url=/login?from={path}'/></head></html>"
    return Answer(403, text.encode(), {"Content-Type": _HTML}, versioned=True)


def forbidden(user: str, permission: str) -> Answer:
    implied = "hudson.security.Permission.GenericWrite, hudson.model.Hudson.Administer"
    headers = {
        "X-You-Are-Authenticated-As": user,
        "X-Required-Permission": permission,
        "X-Permission-Implied-By": implied,
    }
    name = permission.rpartition(".")[2]
    return page(403, "Jenkins", f"{user} is missing the {name} permission", headers)
