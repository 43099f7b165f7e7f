"""What parameters of lists are made of. A value that a parameter cannot have is an error that lists those it can."""

import re
from collections.abc import Callable, Iterable
from datetime import MINYEAR, UTC, datetime
from itertools import islice
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import EMPTY_VALUES
from django.db.models import Model, Q, QuerySet
from django_filters import rest_framework as filters
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field

_ANSWERS = {"true": True, "1": True, "false": False, "0": False}
# Of the names that are known, in an error.
MOST_KNOWN = 50
# Of what somebody wrote, in an error.
_LONGEST_SHOWN = 40
SHA = re.compile(r"[0-9a-f]{7,40}")
_LARGEST_FRACTION = 1e6


def unknown(what: str, value: str, known: Iterable[str]) -> ValidationError:
    """`value` is none of the known ones, the first of which are told."""
    names = list(islice(known, MOST_KNOWN + 1))
    told = ", ".join(names[:MOST_KNOWN]) + (", ..." if len(names) > MOST_KNOWN else "")
    return ValidationError(
        "There is no %(what)s %(value)s here. Known: %(told)s.",
        params={"what": what, "value": value[:_LONGEST_SHOWN], "told": told or "none"},
    )


class Filters(filters.FilterSet):  # type: ignore[misc]  # django-filter has no types
    pass


class _YesOrNo(forms.Field):
    """Django takes every word that it does not know for "not asked": a misspelt one would answer with all rows."""

    def to_python(self, value: object) -> bool | None:
        if value in EMPTY_VALUES:
            return None
        word = str(value).strip().lower()
        if word not in _ANSWERS:
            raise ValidationError("Write true or false, not %(word)s.", params={"word": word[:_LONGEST_SHOWN]})
        return _ANSWERS[word]


class YesOrNoFilter(filters.BooleanFilter):  # type: ignore[misc]  # django-filter has no types
    field_class = _YesOrNo

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # The usual widget for such a field gives unknown words up before the field sees them.
        kwargs.setdefault("widget", forms.TextInput)
        super().__init__(*args, **kwargs)


@extend_schema_field(OpenApiTypes.INT)
class IdFilter(filters.NumberFilter):  # type: ignore[misc]  # django-filter has no types
    """The id of a row: a whole number. A database would round any other."""

    field_class = forms.IntegerField


class _Name(forms.CharField):
    """Ids of the rows of that name: of some things it is unique in a benchmark, or a tree, alone."""

    def __init__(self, *args: Any, named: type[Model], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rows = named._default_manager.order_by("name")
        self._what = str(named._meta.verbose_name)

    def clean(self, value: Any) -> Any:
        name = super().clean(value)
        return None if name in EMPTY_VALUES else self.rows(name)

    def rows(self, name: str) -> list[Any]:
        found = list(self._rows.filter(name=name).values_list("pk", flat=True))
        if not found:
            raise unknown(self._what, name, self._rows.values_list("name", flat=True).distinct()[: MOST_KNOWN + 1])
        return found


class NameFilter(filters.CharFilter):  # type: ignore[misc]  # django-filter has no types
    """The name of a row that others refer to. `path` is the reference.

    The row is looked for first: what refers to it is then found by an index, where a join would read everything.
    """

    field_class = _Name

    def __init__(self, *args: Any, named: type[Model], path: str, **kwargs: Any) -> None:
        super().__init__(*args, named=named, **kwargs)
        self._path = path

    def filter(self, qs: QuerySet[Any], value: list[Any] | None) -> QuerySet[Any]:
        return qs if value is None else qs.filter(self.condition(value))

    def condition(self, found: list[Any]) -> Q:
        return Q(**{f"{self._path}__in": found})


class _Names(_Name):
    """As many as were given; one id each."""

    widget = forms.MultipleHiddenInput

    def clean(self, value: Any) -> list[Any]:
        names = [forms.CharField.clean(self, one) for one in value or ()]
        return [self.rows(name)[0] for name in names if name]


@extend_schema_field({"type": "array", "items": {"type": "string"}})
class NamesFilter(filters.Filter):  # type: ignore[misc]  # django-filter has no types
    """A name that may be given several times. What they mean together is for the list to say."""

    field_class = _Names
    repeats = True

    def __init__(self, *args: Any, named: type[Model], **kwargs: Any) -> None:
        super().__init__(*args, named=named, **kwargs)


class _Word(forms.CharField):
    def __init__(self, *args: Any, what: str, known: Callable[[], Iterable[str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._what, self._known = what, known

    def clean(self, value: Any) -> Any:
        word = super().clean(value)
        if word not in EMPTY_VALUES:
            known = set(self._known())
            if word not in known:
                raise unknown(self._what, word, sorted(known))
        return word


class WordFilter(filters.CharFilter):  # type: ignore[misc]  # django-filter has no types
    """One of the words that are known at the moment, which no table of their own holds."""

    field_class = _Word

    def __init__(self, *args: Any, what: str, known: Callable[[], Iterable[str]], **kwargs: Any) -> None:
        super().__init__(*args, what=what, known=known, **kwargs)


class SinceFilter(filters.IsoDateTimeFilter):  # type: ignore[misc]  # django-filter has no types
    """Rows from a moment on. The database knows fewer time zones than a script can write, so it is asked in UTC."""

    def filter(self, qs: QuerySet[Any], value: datetime | None) -> QuerySet[Any]:
        if value is None:
            return qs
        try:
            moment = value.astimezone(UTC)
        except OverflowError:
            # A moment next to the first or the last that can be written: all rows, or none.
            return qs if (value.year == MINYEAR) is self._is_since else qs.none()
        return qs.filter(**{f"{self.field_name}__{'gte' if self._is_since else 'lt'}": moment})

    _is_since = True


class UntilFilter(SinceFilter):
    """Rows before a moment: two spans that meet there share none."""

    _is_since = False


class _Sha(forms.CharField):
    def clean(self, value: Any) -> str:
        sha = str(super().clean(value)).strip().lower()
        if sha and not SHA.fullmatch(sha):
            raise ValidationError("Write a commit as 7 to 40 hexadecimal digits.")
        return sha


class ShaFilter(filters.CharFilter):  # type: ignore[misc]  # django-filter has no types
    """A commit, from its first seven digits on."""

    field_class = _Sha

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, lookup_expr="startswith", **kwargs)


@extend_schema_field(OpenApiTypes.DOUBLE)
class FractionFilter(filters.NumberFilter):  # type: ignore[misc]  # django-filter has no types
    """0.05 is five in a hundred."""

    field_class = forms.FloatField

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, min_value=0.0, max_value=_LARGEST_FRACTION, **kwargs)

    def get_max_validator(self) -> None:
        """That of the field says it."""
