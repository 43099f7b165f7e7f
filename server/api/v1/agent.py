"""What agents ask and send (docs/agent-protocol.md), checked before it reaches a room."""

import json
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import structlog
from django.db import transaction
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from server.api.measured import BoundedList, MeasurementsField, ValuesIn
from server.api.parsers import (
    ACCEPTED,
    AgentForm,
    AgentJSONParser,
    AgentText,
    BodyForm,
    BytesParser,
    Sentence,
    discard_rest,
    plain_chunks,
)
from server.api.permissions import AgentsOnly
from server.api.public import ProblemOut
from server.builds.expiry import serve_artifact
from server.builds.models import Artifact
from server.builds.records import ArtifactFile, BuildResult
from server.builds.storage import MAX_BYTES, put_artifact
from server.core.access.tokens import is_due, renew_token
from server.core.errors import DomainError
from server.core.models import ApiToken
from server.core.tasks import enqueue
from server.lab.attempts.arrivals import arrive, assignment, take_hello
from server.lab.attempts.asks import HostAsk, answer_ask
from server.lab.attempts.boots import BootReport, start_boot
from server.lab.attempts.ends import end_attempt, report_build
from server.lab.attempts.life import (
    ALL_OF_ATTEMPT,
    HOST_OF_ATTEMPT,
    allow_time,
    claim_attempt,
    find_attempt,
    renew_lease,
)
from server.lab.hosts.state import HostHello
from server.lab.hosts.tokens import charge, check_may_store, may_read
from server.lab.models import Attempt
from server.lab.port import Origin
from server.results.measurements import Values, case_orders, record_boot

# Of every operation; 408, 429 and 503 of its body, too, before anybody here sees it (server/web/application.py).
_REFUSALS = {
    (status, "application/problem+json"): ProblemOut
    for status in (400, 401, 403, 404, 406, 408, 409, 413, 415, 429, 503)
}
_HEX64 = r"^[0-9a-f]{64}$"
# big.LITTLE has two or three.
_MOST_CORE_TYPES = 16
# All cases there are have some hundred metrics; what is refused of them is noted with the boot.
_MOST_MEASUREMENTS = 8000
# A machine without the nodes or programs that cases need skips some hundreds of them, on each of its kinds of cores.
MOST_NOTES = 10_000


class ProgramIn(AgentForm):
    """Which agent process speaks, of which version, on which host."""

    agent = serializers.RegexField(r"^[A-Za-z0-9-]{8,64}$")
    version = serializers.CharField(max_length=60)
    host = serializers.CharField(max_length=200)
    boot_id = serializers.CharField(max_length=36, allow_blank=True, default="")

    def who(self) -> dict[str, str]:
        return {name: self.validated_data[name] for name in ("agent", "host")}


class ClaimIn(ProgramIn):
    """With the controller's build that it runs in; without one these are left out."""

    job = serializers.CharField(max_length=100, allow_blank=True, default="")
    number = serializers.IntegerField(min_value=0, max_value=2**31 - 1, allow_null=True, default=None)
    node = serializers.CharField(max_length=60, allow_blank=True, default="")
    script = serializers.CharField(max_length=64, allow_blank=True, default="")

    def origin(self) -> Origin:
        return Origin(**{name: self.validated_data[name] for name in ("job", "number", "node", "boot_id", "script")})


class SystemIn(ProgramIn):
    """In which system it runs."""

    build_id = serializers.RegexField(r"^[0-9a-f]{0,64}$", allow_blank=True, default="")
    safe = serializers.BooleanField(allow_null=True, default=None)


class HelloIn(SystemIn):
    key = serializers.CharField(max_length=60, allow_blank=True, default="")

    def hello(self) -> HostHello:
        data = self.validated_data
        same = {name: data[name] for name in ("boot_id", "build_id", "safe", "key")}
        return HostHello(**same, agent_version=data["version"])


class AskIn(SystemIn):
    """With what the host works at, and for how many seconds it would wait for work."""

    keys = BoundedList(child=serializers.RegexField(r"^[a-z0-9-]{1,60}$"), default=list, max_length=64)
    wait = serializers.FloatField(min_value=0, max_value=3600, default=0)

    def ask(self) -> HostAsk:
        data = self.validated_data
        same = {name: data[name] for name in ("host", "version", "boot_id", "build_id", "safe")}
        return HostAsk(**same, keys=tuple(data["keys"]))

    def held(self) -> dict[str, str]:
        """For the web process, which takes these headers off."""
        data = self.validated_data
        return {"X-Tidemark-Wait": str(data["wait"]), "X-Tidemark-Keys": " ".join(data["keys"])}


class AgentIn(AgentForm):
    agent = serializers.CharField(max_length=64)


class HeartbeatIn(AgentIn):
    progress = Sentence(200)
    away_seconds = serializers.IntegerField(min_value=0, max_value=3600, default=0)
    log = AgentText(max_length=65_536)


class EndIn(AgentIn):
    outcome = serializers.ChoiceField(["done", "failed", "stopped"])
    reason = Sentence(2000)


class RenewOut(serializers.Serializer[Any]):
    renew = serializers.BooleanField()


class OfferOut(serializers.Serializer[Any]):
    key = serializers.CharField(allow_null=True)
    inside = serializers.BooleanField()
    reason = serializers.CharField()
    again_in = serializers.FloatField(allow_null=True)
    renew = serializers.BooleanField()


class TokenOut(serializers.Serializer[Any]):
    token = serializers.CharField(allow_null=True)
    expires_at = serializers.DateTimeField()


class ReadyOut(serializers.Serializer[Any]):
    ready = serializers.BooleanField()


class ContinueOut(serializers.Serializer[Any]):
    def get_fields(self) -> dict[str, Any]:
        # `continue` is a Python keyword, so the field cannot be an attribute.
        return {"continue": serializers.BooleanField()}


class ArtifactIn(BodyForm):
    kind = serializers.ChoiceField(Artifact.Kind.choices)
    sha256 = serializers.RegexField(_HEX64)
    size = serializers.IntegerField(min_value=0, max_value=MAX_BYTES)


class BuildResultIn(AgentIn):
    outcome = serializers.ChoiceField(["built", "failed", "infrastructure"])
    reason = Sentence(4000)
    seconds = serializers.FloatField(min_value=0)
    build_id = serializers.RegexField(r"^[0-9a-f]{0,64}$", allow_blank=True, default="")
    text_hash = serializers.RegexField(r"^([0-9a-f]{64})?$", allow_blank=True, default="")
    kernel_hash = serializers.RegexField(r"^([0-9a-f]{64})?$", allow_blank=True, default="")
    compiler_version = AgentText(max_length=200)
    first_error = Sentence(4000)
    log_tail = AgentText(max_length=200_000)
    unfit = serializers.BooleanField(default=False)
    artifacts = BoundedList(child=ArtifactIn(), default=list, max_length=len(Artifact.Kind))

    def result(self) -> BuildResult:
        data = dict(self.validated_data)
        del data["agent"], data["unfit"]
        files = tuple(ArtifactFile(**file) for file in data.pop("artifacts"))
        return BuildResult(artifacts=files, **data)


class CoreTypeIn(BodyForm):
    name = serializers.CharField(max_length=60)
    # The list of a machine with thousands of CPUs in no order is long; what is kept of it is cut.
    cpus = serializers.CharField(max_length=50_000, allow_blank=True, default="")


_CORE_TYPES = BoundedList(child=CoreTypeIn(), max_length=_MOST_CORE_TYPES)


class FactsField(serializers.DictField):
    """What the probe saw: free in its words, but not where the service relies on it."""

    # Sixteen kinds of cores of a machine with thousands of CPUs fit, too.
    LIMIT = 2 * 1024 * 1024
    MOST_ITEMS = 20_000

    def to_internal_value(self, data: Any) -> Any:
        facts = super().to_internal_value(_within(data, self.LIMIT, self.MOST_ITEMS))
        core_types = _CORE_TYPES.run_validation(facts.get("core_types", []))
        if not isinstance(facts.get("uarch", ""), str):
            raise serializers.ValidationError("uarch is not a string")
        return {**facts, "core_types": [dict(item) for item in core_types]}


class NotesField(BoundedList):
    """What is to be said of cases without values. What is kept of it is less (server/lab/attempts/boots.py)."""

    LIMIT = 4 * 1024 * 1024
    MOST_ITEMS = 20 * MOST_NOTES

    def to_internal_value(self, data: Any) -> Any:
        return super().to_internal_value(_within(data, self.LIMIT, self.MOST_ITEMS))


class ConditionsField(serializers.DictField):
    """What surrounded the measurements: free in its words, bounded in its size."""

    LIMIT = 1024 * 1024
    # Samples are numbers by the ten thousand, of which each takes a few bytes here and in memory.
    MOST_ITEMS = 200_000

    def to_internal_value(self, data: Any) -> Any:
        return super().to_internal_value(_within(data, self.LIMIT, self.MOST_ITEMS))


def _within(value: Any, limit: int, most_items: int) -> Any:
    """`value` as it is. Raises ValidationError where it is longer as JSON, or holds more names, values and containers.

    Empty lists cost three bytes as JSON and twenty times as much wherever they are read again.
    """
    if len(json.dumps(value)) > limit:
        raise serializers.ValidationError(f"more than {limit} bytes of JSON")
    items, todo = 0, [value]
    while todo:
        one = todo.pop()
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        items += len(inner)
        todo += inner
    if items > most_items:
        raise serializers.ValidationError(f"more than {most_items} items of JSON")
    return value


class BootResultIn(AgentIn):
    outcome = serializers.ChoiceField(["measured", "panic", "no-boot", "timeout", "wrong-kernel", "infrastructure"])
    reason = Sentence(4000)
    boot_id = serializers.RegexField(r"^[0-9a-f-]{0,36}$", allow_blank=True, default="")
    build_id = serializers.RegexField(r"^[0-9a-f]{0,64}$", allow_blank=True, default="")
    started_at = serializers.DateTimeField(allow_null=True, default=None)
    ended_at = serializers.DateTimeField(allow_null=True, default=None)
    facts = FactsField(default=dict)
    console_tail = AgentText(max_length=65_536)
    measurements = MeasurementsField(child=ValuesIn(), default=list, max_length=_MOST_MEASUREMENTS)
    notes = NotesField(child=serializers.DictField(), max_length=MOST_NOTES, default=list)
    conditions = ConditionsField(default=dict)

    def report(self) -> BootReport:
        data = {name: value for name, value in self.validated_data.items() if name not in {"agent", "measurements"}}
        return BootReport(**data)

    def measured(self) -> list[Values]:
        return [Values(**{**item, "values": tuple(item["values"])}) for item in self.validated_data["measurements"]]


log = structlog.get_logger(__name__)

_SHA256 = re.compile(r"[0-9a-f]{64}")
# Twice the largest artifact; of somebody without a token, the largest JSON body.
_MOST_DISCARDED = 2 * MAX_BYTES
_MOST_OF_STRANGERS = 32 * 1024 * 1024


class AgentView(APIView):
    permission_classes = [AgentsOnly]
    parser_classes: Sequence[type[BaseParser]] = [AgentJSONParser]

    @property
    def default_response_headers(self) -> dict[str, str]:
        return {**super().default_response_headers, "Accept-Encoding": ACCEPTED}

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        discard_rest(request, _MOST_DISCARDED if request.auth else _MOST_OF_STRANGERS)
        return super().finalize_response(request, response, *args, **kwargs)


class AgentAttemptView(AgentView):
    """Of one attempt of the caller's, which is found before a body is read: one for no attempt costs nothing."""

    attempt: Attempt
    related: Sequence[str] = ALL_OF_ATTEMPT

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        assert isinstance(request.auth, ApiToken)
        self.attempt = find_attempt(key=kwargs["key"], token=request.auth, related=self.related)
        structlog.contextvars.bind_contextvars(trace=self.attempt.trace, key=self.attempt.key)


class ClaimView(AgentAttemptView):
    @extend_schema(request=ClaimIn, responses={200: OpenApiTypes.OBJECT, **_REFUSALS})
    def post(self, request: Request, **_path: Any) -> Response:
        form = ClaimIn(data=request.data)
        form.is_valid(raise_exception=True)
        attempt = self.attempt
        claim_attempt(attempt, **form.who(), origin=form.origin())
        session = attempt.session
        if session is None:
            return Response(assignment(attempt, case_orders()))
        order = assignment(attempt, case_orders(session.machine, session.benchmarks))
        allow_time(attempt, order["session"]["boot_timeout_seconds"])
        return Response(order)


class ArriveView(AgentAttemptView):
    @extend_schema(request=ClaimIn, responses={200: ReadyOut, **_REFUSALS})
    def post(self, request: Request, **_path: Any) -> Response:
        form = ClaimIn(data=request.data)
        form.is_valid(raise_exception=True)
        return Response({"ready": arrive(self.attempt, **form.who(), origin=form.origin())})


class HelloView(AgentView):
    @extend_schema(request=HelloIn, responses={200: RenewOut, **_REFUSALS})
    def post(self, request: Request) -> Response:
        form = HelloIn(data=request.data)
        form.is_valid(raise_exception=True)
        assert isinstance(request.auth, ApiToken)
        take_hello(token=request.auth, hello=form.hello())
        return Response({"renew": is_due(request.auth)})


class AskView(AgentView):
    """The web process holds a request that found nothing, and asks here again (server/web/waiting.py)."""

    @extend_schema(request=AskIn, responses={200: OfferOut, **_REFUSALS})
    def post(self, request: Request) -> Response:
        form = AskIn(data=request.data)
        form.is_valid(raise_exception=True)
        assert isinstance(request.auth, ApiToken)
        offer = answer_ask(token=request.auth, ask=form.ask())
        told = {"key": offer.key or None, "inside": offer.inside, "reason": offer.reason, "again_in": offer.again_in}
        held = form.held() if not offer.key and offer.again_in is None else {}
        return Response({**told, "renew": is_due(request.auth)}, headers=held)


class TokenView(AgentView):
    @extend_schema(request=AgentIn, responses={200: TokenOut, **_REFUSALS})
    def post(self, request: Request) -> Response:
        form = AgentIn(data=request.data)
        form.is_valid(raise_exception=True)
        assert isinstance(request.auth, ApiToken)
        new = renew_token(request.auth)
        if new is None:
            return Response({"token": None, "expires_at": request.auth.expires_at})
        log.info("token_renewed", scope=request.auth.scope, subject=request.auth.subject)
        return Response({"token": new.secret, "expires_at": new.expires_at})


class HeartbeatView(AgentAttemptView):
    @extend_schema(request=HeartbeatIn, responses={200: ContinueOut, **_REFUSALS})
    def post(self, request: Request, **_path: Any) -> Response:
        form = HeartbeatIn(data=request.data)
        form.is_valid(raise_exception=True)
        return Response({"continue": renew_lease(attempt=self.attempt, **form.validated_data)})


class BuildResultView(AgentAttemptView):
    @extend_schema(request=BuildResultIn, responses={200: OpenApiTypes.OBJECT, **_REFUSALS})
    def post(self, request: Request, key: str) -> Response:
        form = BuildResultIn(data=request.data)
        form.is_valid(raise_exception=True)
        attempt, result = self.attempt, form.result()
        if attempt.build is None:
            raise DomainError("not-found", f"{key} is not a build")
        if not attempt.agent:
            raise DomainError("superseded", f"{key} was never claimed")
        agent, unfit = form.validated_data["agent"], form.validated_data["unfit"]
        stored = report_build(attempt=attempt, agent=agent, result=result, unfit=unfit)
        return Response({"stored": stored})


class BootStartView(AgentAttemptView):
    @extend_schema(request=AgentIn, responses={200: ContinueOut, **_REFUSALS})
    def post(self, request: Request, position: int, **_path: Any) -> Response:
        form = AgentIn(data=request.data)
        form.is_valid(raise_exception=True)
        return Response({"continue": start_boot(attempt=self.attempt, position=position, **form.validated_data)})


class BootResultView(AgentAttemptView):
    related = HOST_OF_ATTEMPT

    @extend_schema(request=BootResultIn, responses={200: OpenApiTypes.OBJECT, **_REFUSALS})
    def post(self, request: Request, key: str, position: int) -> Response:
        form = BootResultIn(data=request.data)
        form.is_valid(raise_exception=True)
        attempt = self.attempt
        if attempt.session is None:
            raise DomainError("not-found", f"{key} is not a session")
        stored, go_on = record_boot(attempt=attempt, position=position, report=form.report(), measured=form.measured())
        return Response({"stored": stored, "continue": go_on})


class EndView(AgentAttemptView):
    @extend_schema(request=EndIn, responses={200: OpenApiTypes.OBJECT, **_REFUSALS})
    def post(self, request: Request, **_path: Any) -> Response:
        form = EndIn(data=request.data)
        form.is_valid(raise_exception=True)
        with transaction.atomic():
            end_attempt(attempt=self.attempt, **form.validated_data)
            enqueue("lab.dispatch")
        return Response({})


class ArtifactView(AgentView):
    parser_classes = [BytesParser]

    @extend_schema(
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses={200: OpenApiTypes.OBJECT, 201: OpenApiTypes.OBJECT, **_REFUSALS},
    )
    def put(self, request: Request, sha256: str) -> Response:
        self._check(sha256)
        assert isinstance(request.auth, ApiToken)
        check_may_store(request.auth)
        # An empty body never reaches a parser: the log of a build that printed nothing is such a file.
        has_body = hasattr(request.data, "read")
        chunks = plain_chunks(request.data, request) if has_body else ()
        new = put_artifact(sha256, chunks, charge=partial(charge, request.auth))
        return Response({"sha256": sha256}, status=201 if new else 200)

    @extend_schema(responses={(200, "application/octet-stream"): OpenApiTypes.BINARY, **_REFUSALS})
    def get(self, request: Request, sha256: str) -> StreamingHttpResponse:
        self._check(sha256)
        assert isinstance(request.auth, ApiToken)
        # One that its work does not need is as unknown as one that is not there.
        if not may_read(request.auth, sha256):
            raise DomainError("not-found", f"no artifact {sha256}")
        stream = serve_artifact(sha256)
        size = {"Content-Length": str(stream.size)}
        return StreamingHttpResponse(stream.chunks, content_type="application/octet-stream", headers=size)

    @staticmethod
    def _check(sha256: str) -> None:
        if not _SHA256.fullmatch(sha256):
            raise DomainError("not-found", "an artifact is named by its SHA-256 in lower-case hex")
