"""Jobs and nodes as XML: our templates filled in."""

import re
from collections.abc import Mapping
from functools import cache
from xml.sax.saxutils import escape

from django.conf import settings

_PLACE = re.compile(r"\{\{([a-z]+)\}\}")


@cache
def template(name: str) -> str:
    """A file of agents/jenkins."""
    path = settings.BASE_DIR / "agents" / "jenkins" / name
    return str(path.read_text(encoding="utf-8"))


def filled(name: str, values: Mapping[str, str]) -> str:
    """A template of XML with all its places filled in, as text that no value can leave."""
    return _PLACE.sub(lambda match: escape(values[match[1]]), template(name))


def filled_script(name: str, values: Mapping[str, str]) -> str:
    """A template of a shell script; the values are quoted for the shell already."""
    return _PLACE.sub(lambda match: values[match[1]], template(name))
