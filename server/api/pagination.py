from rest_framework.pagination import CursorPagination


class Pages(CursorPagination):
    """Newest first, by id: stays fast and stable however deep a script reads."""

    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 500
    ordering = "-id"
