"""What templates say about times, numbers and verdicts. All text is escaped by format_html or the engine."""

from datetime import UTC, datetime, timedelta
from typing import Final

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from server.dashboard.pictures.fingerprint import SIGNS
from server.dashboard.rows import figures
from server.detection.findings.vector import as_ratio

register = template.Library()

# Of something that is expected: nobody counts these seconds.
_SOON = 20
# Nothing that is told since when lies farther ahead, unless some clock is wrong.
_CLOCKS_DIFFER = timedelta(days=1)
_WORDS: Final = {"unchanged": "no change"}

register.filter("ratio", figures.ratio)
register.filter("speed", as_ratio)
register.filter("change", figures.change)
register.filter("effect", figures.effect)
register.filter("least", figures.least)
register.filter("probability", figures.probability)
register.filter("fixed", figures.fixed)
register.filter("span", figures.span)


@register.filter
def sign(word: str) -> str:
    return SIGNS.get(word, "·")


@register.filter
def short(sha: str) -> str:
    """The part of a commit or build id that people read."""
    return sha[:12]


@register.simple_tag
def interval(low: float | None, high: float | None) -> str:
    return figures.interval(low, high)


@register.simple_tag
def moment(at: datetime | None, now: datetime, missing: str = figures.NONE) -> SafeString | str:
    """A time in UTC, with how long ago as its title."""
    if at is None:
        return missing
    at = at.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        figures.ago(at, now),
        at.strftime("%Y-%m-%d %H:%M"),
    )


@register.simple_tag
def instant(at: datetime | None, now: datetime, missing: str = figures.NONE) -> SafeString | str:
    """A time to the millisecond, for histories where the order matters."""
    if at is None:
        return missing
    at = at.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        figures.ago(at, now),
        at.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00"),
    )


@register.simple_tag
def since(at: datetime | None, now: datetime, missing: str = "never") -> SafeString | str:
    """How long ago, with the time in UTC as its title; the date of what a clock ahead of this one dated."""
    if at is None:
        return missing
    at = at.astimezone(UTC)
    if at - now > _CLOCKS_DIFFER:
        return format_html('<time datetime="{}">{}</time>', at.strftime("%Y-%m-%dT%H:%M:%SZ"), at.strftime("%Y-%m-%d"))
    return format_html(
        '<time datetime="{}" title="{} UTC">{}</time>',
        at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        at.strftime("%Y-%m-%d %H:%M:%S"),
        figures.ago(at, now),
    )


@register.simple_tag
def took(start: datetime, end: datetime) -> str:
    return figures.span((end - start).total_seconds())


@register.simple_tag
def verdict(word: str) -> SafeString:
    return format_html(
        '<span class="verdict {}"><span aria-hidden="true">{}</span>&nbsp;{}</span>',
        word,
        SIGNS.get(word, "·"),
        _WORDS.get(word, word),
    )


@register.simple_tag
def coming(at: datetime | None, now: datetime, missing: str = figures.NONE) -> SafeString | str:
    """A time that is expected: the day only where it is another one, and how long until then."""
    if at is None:
        return missing
    at = at.astimezone(UTC)
    day = "" if at.date() == now.astimezone(UTC).date() else f"{at:%Y-%m-%d} "
    left = (at - now).total_seconds()
    until = f"in {figures.span(left)}" if left >= _SOON else "any moment"
    return format_html(
        '<time datetime="{}">{}{}</time>, {}', at.strftime("%Y-%m-%dT%H:%M:%SZ"), day, f"{at:%H:%M}", until
    )


@register.simple_tag
def clock_time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%H:%M:%S} UTC"
