"""What a status, a content type and a redirect mean."""

from urllib.parse import urljoin, urlsplit

from server.lab.dispatch.jenkins.answers import Triggered
from server.lab.dispatch.jenkins.client_values import LARGEST_ID, beginning, clean
from server.lab.dispatch.jenkins.client_wire import Answer
from server.lab.dispatch.jenkins.errors import Forbidden, Garbled, JenkinsError, Missing, Rejected, TokenRefused

_CREATED, _FOUND, _SEE_OTHER = 201, 302, 303
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 401, 403, 404
_FIRST_ERROR, _OK = 400, 200
_NO_CRUMB = b"No valid crumb"


def checked(answer: Answer, path: str) -> Answer:
    """The answer if it is none of an error; raises the error that it is."""
    if answer.status < _OK or answer.status >= _FIRST_ERROR:
        raise _error(answer, path)
    return answer


def _error(answer: Answer, path: str) -> JenkinsError:
    if answer.status in {_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND} and not _is_jenkins_own(answer):
        return Garbled(f"{path}: {answer.status} of something else than Jenkins, it begins {beginning(answer.content)}")
    if answer.status == _UNAUTHORIZED:
        return TokenRefused(f"{path}: the token is refused (401): it was renewed, revoked or has expired")
    if answer.status == _FORBIDDEN:
        return _forbidden(answer, path)
    if answer.status == _NOT_FOUND:
        return Missing(f"{path}: not there, or hidden from this user (404)")
    said = clean(answer.headers.get("X-Error", ""), 300)
    return Rejected(f"{path}: answers {answer.status}{': ' if said else ''}{said}", answer.status)


def _is_jenkins_own(answer: Answer) -> bool:
    """Whether Jenkins refuses, and not a proxy before it: then it says nothing about token, rights, jobs or builds.

    Jenkins' pages name its version. Those of its web server, which refuse a token or a crumb, are known by their words.
    """
    if answer.headers.get("X-Jenkins", ""):
        return True
    if answer.status == _UNAUTHORIZED:
        return 'realm="Jenkins"' in answer.headers.get("WWW-Authenticate", "")
    return answer.status == _FORBIDDEN and _NO_CRUMB in answer.content


def _forbidden(answer: Answer, path: str) -> Forbidden:
    permission = clean(answer.headers.get("X-Required-Permission", ""), 100)
    if permission:
        return Forbidden(f"{path}: the user lacks the permission {permission} (403)", permission)
    if _NO_CRUMB in answer.content:
        return Forbidden(f"{path}: no valid crumb (403): the token file holds a password where an API token belongs")
    return Forbidden(f"{path}: forbidden (403), and no permission is named")


def content_of(answer: Answer, path: str, content_type: str) -> bytes:
    """The whole content of a 200 of the expected type; anything else is not from Jenkins' API."""
    if answer.status != _OK:
        where = answer.headers.get("Location", "")
        raise Garbled(f"{path}: answers {answer.status}{' to ' if where else ''}{clean(where, 200)} instead of content")
    told = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if told != content_type:
        raise Garbled(
            f"{path}: {clean(told, 60) or 'no type'} for {content_type}, it begins {beginning(answer.content)}"
        )
    if answer.cut:
        raise Garbled(f"{path}: longer than {len(answer.content)} bytes")
    return answer.content


def queue_id_of(answer: Answer, path: str) -> Triggered:
    """The item that a trigger's Location names: 201 for a new one, 303 for one that waited already."""
    where = urlsplit(answer.headers.get("Location", "")).path.rstrip("/")
    parent, _, number = where.rpartition("/")
    known = answer.status in {_CREATED, _SEE_OTHER} and parent.endswith("/queue/item")
    if not (known and number.isascii() and number.isdigit() and len(number) <= len(str(LARGEST_ID))):
        raise Garbled(f"{path}: answers {answer.status} with Location {clean(where, 200)!r}, no item of the queue")
    return Triggered(queue_id=_id(int(number), path), folded=answer.status == _SEE_OTHER)


def _id(number: int, path: str) -> int:
    if number > LARGEST_ID:
        raise Garbled(f"{path}: {number} is no id of a queue item")
    return number


def redirect_into(place: str, answer: Answer, path: str, url: str) -> None:
    """What changes something answers 302 into its own pages; one to elsewhere is a proxy's login page."""
    told = answer.headers.get("Location", "")
    where = urljoin(f"{url}{path}", told)
    inside = urlsplit(where).path.startswith(urlsplit(url).path + place)
    if answer.status != _FOUND or not told or not inside:
        raise Garbled(f"{path}: answers {answer.status} with Location {clean(where, 200)!r}, not into {place}")
