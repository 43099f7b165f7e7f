from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from server.core.models import ApiToken


class AgentsOnly(BasePermission):
    """Any valid agent token; which work it may touch is checked where the work is looked up."""

    def has_permission(self, request: Request, _view: APIView) -> bool:
        return isinstance(request.auth, ApiToken)


class MayChangeBuilds(BasePermission):
    """A person who is logged in and has the right."""

    def has_permission(self, request: Request, _view: APIView) -> bool:
        return bool(request.user and request.user.has_perm("builds.change_build"))
