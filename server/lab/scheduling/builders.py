"""The builder that this host itself is."""

from django.conf import settings

from server.lab.models import Builder

LOCAL_BUILDER = "local-builder"


def local_builder() -> Builder:
    """The row of the builder that the local dispatcher uses, made at need. It takes every build, one at a time.

    A site's file and the first dispatch make it; what only looks leaves it alone.
    """
    builder = Builder.objects.filter(name=LOCAL_BUILDER).first()
    return builder or Builder.objects.get_or_create(name=LOCAL_BUILDER)[0]


def is_local_site() -> bool:
    return bool(settings.DISPATCHER == "local")
