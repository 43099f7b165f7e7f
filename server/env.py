"""Settings from the environment; a secret NAME may also come from the file that NAME_FILE names."""

import os
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured


def secret(name: str, default: str | None = None) -> str:
    """The value of NAME, or the stripped content of the file NAME_FILE; fails at start when neither is given."""
    file_name = os.environ.get(f"{name}_FILE")
    if file_name:
        try:
            return Path(file_name).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ImproperlyConfigured(f"{name}_FILE: cannot read {file_name}: {error}") from error
    value = os.environ.get(name, default)
    if value is None or value == "":
        raise ImproperlyConfigured(f"set {name} or {name}_FILE")
    return value


def one_of(name: str, *words: str) -> str:
    """The value of NAME, which is one of `words`, the first where it is not given: no slip opens a wall."""
    value = os.environ.get(name) or words[0]
    if value not in words:
        raise ImproperlyConfigured(f"{name} is {value!r}: it may be {' or '.join(words)}")
    return value
