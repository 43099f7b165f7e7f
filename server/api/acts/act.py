"""What all endpoints share by which people act: who may, how often, strict forms, and every status in the description.

Each calls the function that the page or the command calls. Told twice, none acts twice.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import ValidationError
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from server.api.authentication import PersonAuthentication
from server.api.parsers import AgentJSONParser, BodyForm
from server.api.permissions import ActsInTurn, MayAct
from server.api.public import ProblemOut
from server.core.models import PersonToken

View = TypeVar("View", bound=Callable[..., Any])
_PROBLEM = "application/problem+json"
_REFUSALS = (400, 401, 403, 404, 406, 409, 413, 415, 429, 503)
_LONGEST_REASON = 500


class Acting(APIView):
    """A view by whose POST somebody acts. What else it answers is for everybody, and nobody is asked who he is."""

    scope: ClassVar[PersonToken.Scope]
    parser_classes: Any = [AgentJSONParser]

    def get_authenticators(self) -> list[BaseAuthentication]:
        return [PersonAuthentication(), SessionAuthentication()] if self._acts() else []

    def get_permissions(self) -> list[Any]:
        return [MayAct()] if self._acts() else []

    def get_throttles(self) -> list[BaseThrottle]:
        return [ActsInTurn()] if self._acts() else []

    def get_renderers(self) -> list[BaseRenderer]:
        """What an act answers is no table, whatever the other answers of its address are."""
        return [JSONRenderer()] if self._acts() else super().get_renderers()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if self._acts() and request.query_params:
            raise ValidationError({name[:40]: ["There is no such parameter here."] for name in request.query_params})

    def _acts(self) -> bool:
        return bool(self.request is not None and self.request.method == "POST")


class ActIn(BodyForm):
    """A field that is not known is an error: left out, a misspelt one would be decided without."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping) and (unknown := sorted(str(name) for name in set(data) - set(self.fields))):
            told = f"There is no such field here. Known: {', '.join(sorted(self.fields))}."
            raise ValidationError({name[:40]: [told] for name in unknown[:10]})
        return super().to_internal_value(data)


class ReasonIn(ActIn):
    reason = serializers.CharField(max_length=_LONGEST_REASON, help_text="Why; everybody can read it.")


def filled(form: type[ActIn], request: Request) -> dict[str, Any]:
    """What the form takes of the body; ValidationError for what it does not."""
    given = form(data=request.data)
    given.is_valid(raise_exception=True)
    return dict(given.validated_data)


def describe_act(
    operation: str, request: Any, answers: Mapping[int, Any], scope: PersonToken.Scope
) -> Callable[[View], View]:
    """OpenAPI for an act: its name, its body, its answers, every refusal, and the scope that a token needs."""
    problems = {(status, _PROBLEM): ProblemOut for status in _REFUSALS}
    return extend_schema(
        operation_id=operation,
        request=request,
        responses={**answers, **problems},
        description=f"A token needs the scope `{scope.value}`: {scope.label}.",
    )
