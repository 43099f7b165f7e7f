"""Who may act: agents by their tokens; people by the permissions of Django's admin, their scripts within these."""

from django.contrib.auth.models import User
from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from server.core.access.people import Person
from server.core.access.tries import WINDOW, count_try
from server.core.errors import DomainError
from server.core.models import ApiToken, PersonToken

_Scope = PersonToken.Scope
# What the pages ask of a person for the same.
PERMISSIONS = {
    _Scope.SUBMIT: "sources.add_series",
    _Scope.APPROVE: "sources.change_series",
    _Scope.RETEST: "lab.add_trial",
    _Scope.TRIAGE: "detection.change_finding",
    _Scope.MODERATE: "reports.change_report",
    _Scope.MAINTENANCE: "lab.change_machine",
    _Scope.BUILDS: "builds.change_build",
    _Scope.ENROL: "lab.change_machine",
    # Whoever may sign in.
    _Scope.SUBSCRIBE: "",
}
# What is told then is for staff, as names of hosts and logs of agents are.
_OF_STAFF = frozenset({_Scope.ENROL})
# Of one token, or one person without, in a window of 15 minutes.
MOST_ACTS = 300


class AgentsOnly(BasePermission):
    """Any valid agent token; which work it may touch is checked where the work is looked up."""

    def has_permission(self, request: Request, _view: APIView) -> bool:
        return isinstance(request.auth, ApiToken)


class MayAct(BasePermission):
    """A person who has the right now, and whose token, if one is shown, was made for it: the view's `scope`."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        if not request.user or not request.user.is_authenticated:
            return False
        scope: PersonToken.Scope = view.scope  # type: ignore[attr-defined]  # of every view that acts
        if person_of(request).lacks(scope):
            raise DomainError("scope-missing", f"The token was not made for this: it lacks the scope {scope.value}.")
        wanted = PERMISSIONS[scope]
        if wanted and not request.user.has_perm(wanted):
            raise PermissionDenied(f"{request.user.get_username()} lacks the permission {wanted}.")
        if scope in _OF_STAFF and not request.user.is_staff:
            raise PermissionDenied(f"{request.user.get_username()} is not of the staff.")
        return True


class ActsInTurn(BaseThrottle):
    """So many acts in one window; what was refused for want of a right is not counted."""

    def allow_request(self, request: Request, _view: APIView) -> bool:
        person = person_of(request)
        whose = f"token {person.token.pk}" if person.token else f"user {person.user.pk}"
        return count_try(f"acts of {whose}") <= MOST_ACTS

    def wait(self) -> float:
        return WINDOW.total_seconds()


def person_of(request: Request) -> Person:
    """Who asks, once it is known that somebody does."""
    if isinstance(request.auth, Person):
        return request.auth
    assert isinstance(request.user, User)
    return Person(request.user)
