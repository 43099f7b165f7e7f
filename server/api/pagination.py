from rest_framework.exceptions import NotFound
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request


class Pages(CursorPagination):
    """Newest first, by id: stays fast and stable however deep a script reads."""

    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 500
    ordering = "-id"

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
