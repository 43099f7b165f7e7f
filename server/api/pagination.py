from typing import Any

from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request

_LONGEST_SIZE = 20


class Pages(CursorPagination):
    """Newest first, by id: stays fast and stable however deep a script reads."""

    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 500
    ordering = "-id"

    def get_page_size(self, request: Request) -> int:
        """A page that is shorter than what was asked for would be taken for the last one."""
        asked = request.query_params.get("page_size")
        if asked is None:
            return self.page_size
        # Not int() alone, which takes signs, blanks and digits of all scripts.
        if not (asked.isascii() and asked.isdecimal()) or not 0 < int(asked[:_LONGEST_SIZE]) <= self.max_page_size:
            raise ValidationError({"page_size": [f"Write a whole number from 1 to {self.max_page_size}."]})
        return int(asked[:_LONGEST_SIZE])

    def get_schema_operation_parameters(self, view: Any) -> list[Any]:
        parameters: list[Any] = super().get_schema_operation_parameters(view)
        for parameter in parameters:
            if parameter["name"] == self.page_size_query_param:
                bounds = {"minimum": 1, "maximum": self.max_page_size, "default": self.page_size}
                parameter["schema"] = {"type": "integer", **bounds}
        return parameters

    def get_paginated_response_schema(self, schema: Any) -> dict[str, Any]:
        """Which DRF describes as OpenAPI 3.0 did: 3.1 knows no `nullable`."""
        described: dict[str, Any] = super().get_paginated_response_schema(schema)
        address = {"type": ["string", "null"], "format": "uri"}
        described["properties"] |= {"next": address, "previous": dict(address)}
        described["required"] = ["next", "previous", "results"]
        return described

    def link_header(self) -> str:
        """Where the pages before and after it are (RFC 8288); empty where there are none, or no page was read."""
        if not hasattr(self, "has_next"):
            return ""
        links = (("next", self.get_next_link()), ("prev", self.get_previous_link()))
        return ", ".join(f'<{url}>; rel="{name}"' for name, url in links if url)

    def decode_cursor(self, request: Request) -> Cursor | None:
        """A made-up cursor is a wrong address; DRF would hand its position to the database as it is."""
        cursor = super().decode_cursor(request)
        if cursor is not None and cursor.position is not None and not str(cursor.position).isdecimal():
            raise NotFound(self.invalid_cursor_message)
        return cursor


class ShortPages(Pages):
    """Of rows each of which is told from many others: a series from its builds and sessions."""

    max_page_size = 100


class CellPages(Pages):
    """Cells of one machine or session: a few hundred at most sites, so that one page is enough."""

    page_size = 500
    ordering = "id"


class PatchPages(Pages):
    """Patches of one series in their order; each may bring some kilobytes of trailers and paths."""

    page_size = 100
    max_page_size = 200
    ordering = "index"
