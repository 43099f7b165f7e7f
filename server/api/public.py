"""What all read endpoints share: no login, strict questions, errors described in the schema, and values that many
answers hold.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils.cache import patch_vary_headers
from django.utils.functional import cached_property
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import ValidationError
from rest_framework.generics import GenericAPIView
from rest_framework.mixins import ListModelMixin
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.settings import api_settings

from server.api.answers import OpenAnswers
from server.api.formats import TABLES, Negotiation, PlainRows, Rows, field_names, narrow
from server.api.pagination import Pages
from server.detection.models import Comparison, Finding
from server.lab.models import Boot, Session
from server.sources.models import Revision


class ProblemOut(serializers.Serializer[Any]):
    """Every error: application/problem+json."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.CharField(help_text="A stable word for programs.")
    errors = serializers.JSONField(  # type: ignore[assignment]  # the answer's name; `.errors` of this form is not used
        required=False, help_text="For code `invalid`: what is wrong with each parameter."
    )


class VirtualOut(serializers.Serializer[Any]):
    """Figures of virtual machines are marked wherever they stand; they are never evidence."""

    virtual = serializers.SerializerMethodField()
    evidence = serializers.SerializerMethodField()

    def get_virtual(self, row: Any) -> bool:
        # A queryset adds `seen_virtual` where the probe of a boot can contradict what a machine is said to be.
        return bool(row.virtual or getattr(row, "seen_virtual", False))

    def get_evidence(self, row: Any) -> bool:
        return not self.get_virtual(row)


class AuthorOut(serializers.Serializer[Any]):
    name = serializers.CharField(source="author_name")
    address = serializers.CharField(source="author_address")


class RevisionOut(serializers.ModelSerializer[Revision]):
    tree = serializers.CharField(source="tree.name")

    class Meta:
        model = Revision
        fields = ["sha", "tree", "tree_sha", "subject", "committed_at"]


class SessionBriefOut(VirtualOut, serializers.ModelSerializer[Session]):
    machine = serializers.CharField(source="machine.name")
    uarch = serializers.CharField(source="machine.uarch.name")
    clock = serializers.CharField(source="machine.clock")

    class Meta:
        model = Session
        list_serializer_class = PlainRows
        fields = [
            "id",
            "purpose",
            "series",
            "machine",
            "uarch",
            "virtual",
            "evidence",
            "clock",
            "state",
            "reason",
            "reason_code",
            "state_since",
            "created_at",
            "trace",
        ]

    def get_virtual(self, row: Session) -> bool:
        return bool(row.machine.virtual or getattr(row, "seen_virtual", False))


Form = TypeVar("Form", bound=serializers.BaseSerializer[Any])
View = TypeVar("View", bound=Callable[..., Any])
_PROBLEM = "application/problem+json"


_MOST_UNKNOWN = 10
_LONGEST_NAME = 40


class PublicMixin(OpenAnswers):
    """Everything here is public; a stale token in a script's headers does not matter.

    A parameter that is not known is an error, and one without a value: left out, they would answer with all rows.
    `fields` leaves of each row, or of an answer without rows, what is named.
    """

    # Its docstring stands in the description of the API, where a view has none. A view answers by `self.told(form)`.

    authentication_classes: Sequence[type[BaseAuthentication]] = ()
    content_negotiation_class = Negotiation
    # Beside what its filters and, of a list, its pages take.
    takes: Collection[str] = ()
    # Of these what may come more than once.
    takes_several: Collection[str] = ()
    # What an answer holds beside other things; the results of a list are its rows anyway.
    rows: Rows | None = None
    # Forms beside those that all rows have.
    files: tuple[type[BaseRenderer], ...] = ()

    @property
    def table(self) -> Rows | None:
        if self.rows is None and isinstance(self, ListModelMixin) and isinstance(self, GenericAPIView):
            return Rows("results", self.get_serializer_class())
        return self.rows

    @property
    def known_fields(self) -> tuple[str, ...]:
        """What `fields` may name; none: it is not taken."""
        if self.table is not None:
            return self.table.names
        form = getattr(self, "serializer_class", None)
        return () if form is None else field_names(form)

    @cached_property
    def asked(self) -> tuple[str, ...] | None:
        """The fields that are asked for, in that order, each once; None: all."""
        request: Request | None = getattr(self, "request", None)
        told = None if request is None else request.query_params.get("fields")
        return None if told is None else tuple(dict.fromkeys(name.strip() for name in told.split(",")))

    @property
    def column_names(self) -> tuple[str, ...]:
        return self.known_fields if self.asked is None else self.asked

    def wants(self, *names: str) -> bool:
        """Whether any of these fields is told, where finding them costs queries."""
        return self.asked is None or not set(self.asked).isdisjoint(names)

    def get_renderers(self) -> list[BaseRenderer]:
        forms = self.renderer_classes if self.table is None else (*TABLES, *self.files)
        return [form() for form in forms]

    def get_serializer(self, *given: Any, **more: Any) -> Any:
        return self.narrowed(super().get_serializer(*given, **more))  # type: ignore[misc]  # that of a list's base

    def narrowed(self, form: Form) -> Form:
        if self.asked is not None:
            narrow(form, self.table, self.asked)
        return form

    def told(self, form: serializers.BaseSerializer[Any]) -> Response:
        """The answer that `form` makes, as far as it was asked for."""
        return Response(self.narrowed(form).data)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if request.method in {"GET", "HEAD"}:
            self._refuse_unknown(request)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        pages = getattr(self, "_paginator", None)
        if isinstance(pages, Pages) and not getattr(response, "exception", False) and (links := pages.link_header()):
            response.headers["Link"] = links
        if len(self.get_renderers()) > 1:
            patch_vary_headers(response, ("Accept",))
        return super().finalize_response(request, response, *args, **kwargs)

    def _refuse_unknown(self, request: Request) -> None:
        filters = getattr(getattr(self, "filterset_class", None), "base_filters", {})
        known = {*filters, *self.takes, api_settings.URL_FORMAT_OVERRIDE}
        if self.known_fields:
            known.add("fields")
        if isinstance(self, ListModelMixin):
            known |= PAGING
        told = f"There is no such parameter here. Known: {', '.join(sorted(known))}."
        wrong = {name[:_LONGEST_NAME]: [told] for name in request.query_params if name not in known}
        for name, given in request.query_params.lists():
            several = name in self.takes_several or getattr(filters.get(name), "repeats", False)
            if name in known and len(given) > 1 and not several:
                wrong[name] = ["Write it once."]
            elif name in known - {"fields", "page_size"} and not all(map(str.strip, given)):
                # As a script writes it whose variable is not set.
                wrong[name] = ["Write a value, or leave it out."]
        if "fields" not in wrong and (strange := set(self.asked or ()).difference(self.known_fields)):
            one = min(strange)[:_LONGEST_NAME]
            wrong["fields"] = [f"There is no field {one} here. Known: {', '.join(self.known_fields)}."]
        if wrong:
            raise ValidationError(dict(list(wrong.items())[:_MOST_UNKNOWN]))


PAGING = frozenset({"page_size", "cursor"})


def paging(pages: type[Pages]) -> list[OpenApiParameter]:
    """Of an answer that holds pages beside other things, for its description."""
    size = {"type": "integer", "minimum": 1, "maximum": pages.max_page_size, "default": pages.page_size}
    return [
        OpenApiParameter("page_size", size, description="Number of results to return per page."),
        OpenApiParameter("cursor", str, description="The pagination cursor value."),
    ]


def describe(operation: str, answer: Any, **options: Any) -> Callable[[View], View]:
    """OpenAPI for a reading view: its name, its answer, and problem+json for what can go wrong."""
    problems = {(status, _PROBLEM): ProblemOut for status in (400, 404, 406)}
    answers: dict[Any, Any] = {
        200: answer,
        304: OpenApiResponse(description="As If-None-Match says it is known."),
        **problems,
    }
    return extend_schema(operation_id=operation, responses=answers, **options)


def page_of(view: GenericAPIView[Any], request: Request, rows: QuerySet[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """One page of what an answer holds beside other things, and where the pages before and after it are."""
    assert isinstance(view.paginator, Pages)
    page = view.paginator.paginate_queryset(rows, request, view=view)
    assert page is not None
    return page, {"next": view.paginator.get_next_link(), "previous": view.paginator.get_previous_link()}


def with_seen_virtual(sessions: QuerySet[Session]) -> QuerySet[Session]:
    """Sessions that know whether the probe of any of their boots saw a hypervisor."""
    seen = Boot.objects.filter(session=OuterRef("pk"), facts__virtual=True).order_by()
    # Not EXISTS: PostgreSQL may answer that for all sessions at once, and read every boot for one page of them.
    return sessions.annotate(seen_virtual=Coalesce(Subquery(seen.values("facts__virtual")[:1]), False))


def with_seen_virtual_findings(findings: QuerySet[Finding]) -> QuerySet[Finding]:
    """The same for findings, over the sessions that were judged."""
    own = Q(trial=OuterRef("trial")) | Q(series=OuterRef("series"))
    # Asked whether there is any: a join would bring every cell of a session with every boot of it.
    judged = Session.objects.filter(own).filter(Exists(Comparison.objects.filter(session=OuterRef("pk")).order_by()))
    marked = with_seen_virtual(judged).filter(Q(machine__virtual=True) | Q(seen_virtual=True))
    return findings.annotate(seen_virtual=Exists(marked))
