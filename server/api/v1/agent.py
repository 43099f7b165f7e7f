"""What agents call (docs/agent-protocol.md). Each view checks the form, finds the attempt and calls one service."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import structlog
from django.db import transaction
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from server.api.parsers import ACCEPTED, AgentJSONParser, BytesParser, discard_rest, plain_chunks
from server.api.permissions import AgentsOnly
from server.api.v1 import agent_serializers as forms
from server.builds.serving import serve_artifact
from server.builds.storage import MAX_BYTES, put_artifact
from server.core.errors import DomainError
from server.core.models import ApiToken
from server.core.tasks import enqueue
from server.core.tokens import is_due, renew_token
from server.lab.arrivals import arrive, take_hello
from server.lab.assignments import assignment
from server.lab.attempts import allow_time, claim_attempt, end_attempt, find_attempt, renew_lease, report_build
from server.lab.boots import start_boot
from server.lab.host_tokens import charge, check_may_store, may_read
from server.lab.models import Attempt
from server.results.selectors import case_orders
from server.results.services import record_boot

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


class AttemptView(AgentView):
    """Of one attempt of the caller's, which is found before a body is read: one for no attempt costs nothing."""

    attempt: Attempt

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        assert isinstance(request.auth, ApiToken)
        self.attempt = find_attempt(key=kwargs["key"], token=request.auth)
        structlog.contextvars.bind_contextvars(trace=self.attempt.trace, key=self.attempt.key)


class ClaimView(AttemptView):
    @extend_schema(request=forms.ClaimIn, responses={200: OpenApiTypes.OBJECT})
    def post(self, request: Request, **_path: Any) -> Response:
        form = forms.ClaimIn(data=request.data)
        form.is_valid(raise_exception=True)
        attempt = self.attempt
        claim_attempt(attempt, **form.place())
        session = attempt.session
        if session is None:
            return Response(assignment(attempt, case_orders()))
        order = assignment(attempt, case_orders(session.machine, session.benchmarks))
        allow_time(attempt, order["session"]["boot_timeout_seconds"])
        return Response(order)


class ArriveView(AttemptView):
    @extend_schema(request=forms.ClaimIn, responses={200: forms.ReadyOut})
    def post(self, request: Request, **_path: Any) -> Response:
        form = forms.ClaimIn(data=request.data)
        form.is_valid(raise_exception=True)
        return Response({"ready": arrive(self.attempt, **form.place())})


class HelloView(AgentView):
    @extend_schema(request=forms.HelloIn, responses={200: forms.RenewOut})
    def post(self, request: Request) -> Response:
        form = forms.HelloIn(data=request.data)
        form.is_valid(raise_exception=True)
        assert isinstance(request.auth, ApiToken)
        take_hello(token=request.auth, hello=form.hello())
        return Response({"renew": is_due(request.auth)})


class TokenView(AgentView):
    @extend_schema(request=forms.AgentIn, responses={200: forms.TokenOut})
    def post(self, request: Request) -> Response:
        form = forms.AgentIn(data=request.data)
        form.is_valid(raise_exception=True)
        assert isinstance(request.auth, ApiToken)
        new = renew_token(request.auth)
        if new is None:
            return Response({"token": None, "expires_at": request.auth.expires_at})
        log.info("token_renewed", scope=request.auth.scope, subject=request.auth.subject)
        return Response({"token": new.secret, "expires_at": new.expires_at})


class HeartbeatView(AttemptView):
    @extend_schema(request=forms.HeartbeatIn, responses={200: forms.ContinueOut})
    def post(self, request: Request, **_path: Any) -> Response:
        form = forms.HeartbeatIn(data=request.data)
        form.is_valid(raise_exception=True)
        return Response({"continue": renew_lease(attempt=self.attempt, **form.validated_data)})


class BuildResultView(AttemptView):
    @extend_schema(request=forms.BuildResultIn, responses={200: OpenApiTypes.OBJECT})
    def post(self, request: Request, key: str) -> Response:
        form = forms.BuildResultIn(data=request.data)
        form.is_valid(raise_exception=True)
        attempt, result = self.attempt, form.result()
        if attempt.build is None:
            raise DomainError("not-found", f"{key} is not a build")
        if not attempt.agent:
            raise DomainError("superseded", f"{key} was never claimed")
        agent, unfit = form.validated_data["agent"], form.validated_data["unfit"]
        stored = report_build(attempt=attempt, agent=agent, result=result, unfit=unfit)
        return Response({"stored": stored})


class BootStartView(AttemptView):
    @extend_schema(request=forms.AgentIn, responses={200: forms.ContinueOut})
    def post(self, request: Request, position: int, **_path: Any) -> Response:
        form = forms.AgentIn(data=request.data)
        form.is_valid(raise_exception=True)
        return Response({"continue": start_boot(attempt=self.attempt, position=position, **form.validated_data)})


class BootResultView(AttemptView):
    @extend_schema(request=forms.BootResultIn, responses={200: OpenApiTypes.OBJECT})
    def post(self, request: Request, key: str, position: int) -> Response:
        form = forms.BootResultIn(data=request.data)
        form.is_valid(raise_exception=True)
        attempt = self.attempt
        if attempt.session is None:
            raise DomainError("not-found", f"{key} is not a session")
        stored, go_on = record_boot(attempt=attempt, position=position, report=form.report(), measured=form.measured())
        return Response({"stored": stored, "continue": go_on})


class EndView(AttemptView):
    @extend_schema(request=forms.EndIn, responses={200: OpenApiTypes.OBJECT})
    def post(self, request: Request, **_path: Any) -> Response:
        form = forms.EndIn(data=request.data)
        form.is_valid(raise_exception=True)
        with transaction.atomic():
            end_attempt(attempt=self.attempt, **form.validated_data)
            enqueue("lab.dispatch")
        return Response({})


class ArtifactView(AgentView):
    parser_classes = [BytesParser]

    @extend_schema(request={"application/octet-stream": OpenApiTypes.BINARY}, responses={200: OpenApiTypes.OBJECT})
    def put(self, request: Request, sha256: str) -> Response:
        self._check(sha256)
        assert isinstance(request.auth, ApiToken)
        check_may_store(request.auth)
        # An empty body never reaches a parser: the log of a build that printed nothing is such a file.
        has_body = hasattr(request.data, "read")
        chunks = plain_chunks(request.data, request) if has_body else ()
        new = put_artifact(sha256, chunks, charge=partial(charge, request.auth))
        return Response({"sha256": sha256}, status=201 if new else 200)

    @extend_schema(responses={(200, "application/octet-stream"): OpenApiTypes.BINARY})
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
