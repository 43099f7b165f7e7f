"""What every page knows about the site."""

from django.conf import settings
from django.http import HttpRequest


def site(_request: HttpRequest) -> dict[str, object]:
    return {"site_url": settings.SITE_URL, "version": settings.VERSION}
