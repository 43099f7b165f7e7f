"""The forms in which one answer leaves: JSON, its rows as lines or as a table, its rows as columns.

An answer that has rows is told as CSV and NDJSON too, where each row is a line. What stands around the rows in JSON is
left out there, but for what each row repeats in front (`Rows.head`); where the pages before and after are says `Link`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from operator import attrgetter
from typing import Any, ClassVar

from django.core.exceptions import ObjectDoesNotExist
from django.db.models.manager import BaseManager
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.exceptions import NotAcceptable, ValidationError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.settings import api_settings

from server.api.parsers import BodyForm
from server.core.rows.lines import as_json, csv_cell, csv_lines, json_lines

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Rows:
    """The rows of an answer: `at` is the path to them, through lists too (`machines.comparisons`).

    `head` are fields of what holds them, which each line of a table repeats.
    """

    at: str
    form: type[serializers.BaseSerializer[Any]]
    head: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All columns of a table, in their order."""
        return (*self.head, *field_names(self.form))

    def lines(self, data: Any) -> Iterator[dict[str, Any]]:
        """Each row with its head."""
        *_, last = self.at.split(".")
        for holder in self._holders(data):
            head = {name: holder[name] for name in self.head}
            for row in holder[last]:
                yield {**head, **row}

    def as_columns(self, data: Any, names: Sequence[str]) -> Any:
        """The same answer, with one array for each field of its rows."""
        *outer, last = self.at.split(".")
        own = [name for name in names if name not in self.head]
        return _replaced(data, outer, last, own)

    def _holders(self, data: Any) -> list[Any]:
        found = [data]
        for name in self.at.split(".")[:-1]:
            found = [one for holder in found for one in holder[name]]
        return found


def _replaced(holder: Any, outer: Sequence[str], last: str, names: Sequence[str]) -> dict[str, Any]:
    if not outer:
        return {**holder, last: {name: [row[name] for row in holder[last]] for name in names}}
    return {**holder, outer[0]: [_replaced(one, outer[1:], last, names) for one in holder[outer[0]]]}


def field_names(form: type[serializers.BaseSerializer[Any]]) -> tuple[str, ...]:
    return _field_names(form)  # type: ignore[arg-type]  # classes are hashable


@cache
def _field_names(form: Any) -> tuple[str, ...]:
    return tuple(form().fields)


def narrow(form: serializers.BaseSerializer[Any], rows: Rows | None, names: Sequence[str]) -> None:
    """Leave `form` the fields that were asked for, in that order: of its rows, or its own where it has none.

    What is left out costs nothing, not even the queries by which it would be found.
    """
    inner: Any = getattr(form, "child", form)
    if rows is not None and not hasattr(form, "child"):
        for name in rows.at.split("."):
            inner = inner.fields[name].child
    own: dict[str, Any] = inner.fields.fields
    chosen = {name: own[name] for name in names if name in own}
    own.clear()
    own.update(chosen)


class PlainRows(serializers.ListSerializer[Any]):
    """Many rows: where a value stands is found once for all of them, which took most of the time of each field.

    A row may be a dictionary, and a path end at nothing: then the field itself is asked.
    """

    @cached_property
    def _readers(self) -> list[tuple[str, Callable[[Any], Any]]]:
        form: Any = self.child
        return [(name, _reader(field)) for name, field in form.fields.items() if not field.write_only]

    def to_representation(self, data: Any) -> list[Any]:
        readers = self._readers
        rows = data.all() if isinstance(data, BaseManager) else data
        return [{name: read(row) for name, read in readers} for row in rows]


# As the fields of these classes tell a value of that type; one of another type is left to the field.
_TOLD: dict[type, tuple[type, Callable[[Any], Any]]] = {
    serializers.CharField: (str, str),
    serializers.ChoiceField: (str, str),
    serializers.IntegerField: (int, int),
    serializers.FloatField: (float, float),
    serializers.BooleanField: (bool, bool),
}


def _reader(field: Any) -> Callable[[Any], Any]:
    def ask(row: Any) -> Any:
        value = field.get_attribute(row)
        return None if value is None else field.to_representation(value)

    known = {**_TOLD, serializers.DateTimeField: (datetime, field.to_representation)}
    if type(field) not in known or field.source == "*":
        return ask
    find, (of, told) = attrgetter(field.source), known[type(field)]

    def read(row: Any) -> Any:
        try:
            value = find(row)
        except AttributeError:
            return ask(row)
        except ObjectDoesNotExist:
            return None
        return None if value is None else told(value) if isinstance(value, of) else ask(row)

    return read


class TableRenderer(BaseRenderer):
    """What is written from the rows of an answer. The view knows which they are, and the fields that were asked for."""

    description: ClassVar[str]
    schema: ClassVar[dict[str, Any]] = {"type": "string"}

    def render(self, data: Any, _type: str | None = None, context: Mapping[str, Any] | None = None) -> bytes:
        assert context is not None
        view: Any = context["view"]
        return self.written(data, view.table, view.column_names)

    def written(self, data: Any, rows: Rows, names: Sequence[str]) -> bytes:
        raise NotImplementedError


class CsvRenderer(TableRenderer):
    media_type, format, charset = "text/csv", "csv", "utf-8"
    description = "A header, and a line for each row."

    def written(self, data: Any, rows: Rows, names: Sequence[str]) -> bytes:
        return b"".join(csv_lines(([csv_cell(row[name]) for name in names] for row in rows.lines(data)), names))


class LinesRenderer(TableRenderer):
    media_type, format, charset = "application/x-ndjson", "ndjson", "utf-8"
    description = "A JSON object on a line for each row."

    def written(self, data: Any, rows: Rows, names: Sequence[str]) -> bytes:
        return b"".join(json_lines({name: row[name] for name in names} for row in rows.lines(data)))


class ColumnsRenderer(TableRenderer):
    media_type, format, charset = "application/vnd.tidemark.columns+json", "columns", None
    description = "As JSON, with one array for each field of the rows."
    schema: ClassVar[dict[str, Any]] = {"type": "object", "additionalProperties": {}}

    def written(self, data: Any, rows: Rows, names: Sequence[str]) -> bytes:
        return as_json(rows.as_columns(data, names))


class _StreamRenderer(TableRenderer):
    """Never asked to render: who offers it streams its rows."""

    charset = None
    render_style = "binary"
    schema: ClassVar[dict[str, Any]] = {"type": "string", "format": "binary"}


class ArrowRenderer(_StreamRenderer):
    media_type, format = "application/vnd.apache.arrow.stream", "arrow"
    description = "An Arrow IPC stream of all rows, without pages."


class ParquetRenderer(_StreamRenderer):
    media_type, format = "application/vnd.apache.parquet", "parquet"
    description = "A Parquet file of all rows, without pages."


TABLES: tuple[type[BaseRenderer], ...] = (JSONRenderer, CsvRenderer, LinesRenderer, ColumnsRenderer)
FILES: tuple[type[BaseRenderer], ...] = (ArrowRenderer, ParquetRenderer)


class Negotiation(DefaultContentNegotiation):
    """`format` decides; else what `Accept` wants most (RFC 9110, 12.5.1), and JSON where it is all the same."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderers = list(renderers)
        name = format_suffix or request.query_params.get(str(api_settings.URL_FORMAT_OVERRIDE))
        if name is not None:
            for renderer in renderers:
                if renderer.format == name:
                    return renderer, renderer.media_type
            known = ", ".join(str(renderer.format) for renderer in renderers)
            raise ValidationError({"format": [f"There is no such format here. Known: {known}."]})
        ranges = [_range(token) for token in self.get_accept_list(request)]
        wanted = [(_wanted(renderer.media_type, ranges), -place) for place, renderer in enumerate(renderers)]
        (weight, _), place = max(wanted)
        if weight <= 0:
            raise NotAcceptable(available_renderers=renderers)
        return renderers[-place], renderers[-place].media_type


def _range(token: str) -> tuple[str, float]:
    """A media range and its weight; a weight that is none counts as 1, as without it."""
    name, *parameters = (part.strip().lower() for part in token.split(";"))
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip() == "q":
            try:
                return name, min(max(float(value), 0.0), 1.0)
            except ValueError:
                break
    return name, 1.0


def _wanted(media_type: str, ranges: Sequence[tuple[str, float]]) -> tuple[float, int]:
    """How much it is wanted, and how exactly it was named: the nearest range decides."""
    near = ["*/*", f"{media_type.partition('/')[0]}/*", media_type]
    found = [(near.index(name), weight) for name, weight in ranges if name in near]
    exact, weight = max(found, default=(0, 0.0))
    return weight, exact


class TableSchema(AutoSchema):
    """Describes beside an answer the other forms that it has, and what `fields` leaves of it."""

    def get_override_parameters(self) -> list[Any]:
        found: list[Any] = super().get_override_parameters()
        if self.method != "GET" or not (names := getattr(self.view, "known_fields", ())):
            return found
        told = "These fields alone, with commas between them; all: of the rows, where the answer has rows."
        form = {"type": "array", "items": {"type": "string", "enum": list(names)}, "minItems": 1}
        return [*found, OpenApiParameter("fields", form, explode=False, description=told)]

    def _map_serializer_field(self, field: Any, direction: Any, bypass_extensions: bool = False) -> Any:  # noqa: FBT001, FBT002 (the library's own)
        shape: Any = super()._map_serializer_field(field, direction, bypass_extensions)  # type: ignore[no-untyped-call]
        if isinstance(field, serializers.CharField) and isinstance(field.parent, BodyForm) and not field.allow_blank:
            shape.setdefault("minLength", 1)
        return shape

    def get_filter_backends(self) -> list[Any]:
        """Of rows that are no list of their own, too."""
        if getattr(self.view, "rows", None) is not None and hasattr(self.view, "filterset_class"):
            return list(getattr(self.view, "filter_backends", ()))
        found: list[Any] = super().get_filter_backends()
        return found

    def _get_response_for_code(
        self, serializer: Any, status_code: str, media_types: Any = None, direction: Any = "response"
    ) -> Any:
        names = getattr(self.view, "known_fields", ())
        if status_code != "200" or self.method != "GET" or media_types or not names:
            return super()._get_response_for_code(serializer, status_code, media_types, direction)  # type: ignore[no-untyped-call]
        json_type = JSONRenderer.media_type
        described: dict[str, Any] = super()._get_response_for_code(  # type: ignore[no-untyped-call]
            serializer, status_code, [json_type], direction
        )
        content = described["content"]
        content[json_type]["schema"] = self._or_in_part(content[json_type]["schema"])
        for renderer in self.view.get_renderers():
            if isinstance(renderer, TableRenderer):
                content[renderer.media_type] = {"schema": {**renderer.schema, "description": renderer.description}}
        return described

    def _or_in_part(self, schema: dict[str, Any]) -> dict[str, Any]:
        rows: Rows | None = getattr(self.view, "table", None)
        part = self._part(schema, rows.at.split(".") if rows else [])
        return {"anyOf": [schema, part]}

    def _part(self, reference: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
        """The component as `fields` leaves it: what is at the end of the path need not have all of its fields."""
        name = reference["$ref"].rpartition("/")[2]
        whole = self.registry._components[name, ResolvedComponent.SCHEMA].schema  # noqa: SLF001 (it has no other way)
        # By reference: a second copy of its choices would take their names from them.
        properties: dict[str, Any] = {
            key: {"$ref": f"{reference['$ref']}/properties/{key}"} for key in whole["properties"]
        }
        part: dict[str, Any] = {"type": "object", "properties": properties}
        if path:
            items = self._part(whole["properties"][path[0]]["items"], path[1:])
            properties[path[0]] = {"type": "array", "items": items}
            part["required"] = whole["required"]
        component = ResolvedComponent(  # type: ignore[no-untyped-call]
            name=f"{name}Part", type=ResolvedComponent.SCHEMA, schema=part, object=f"{name}Part"
        )
        self.registry.register_on_missing(component)
        return dict(component.ref)
