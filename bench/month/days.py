"""The days of a lab: what comes in on each of them, until all of it is at its end; and how a day goes by.

Nothing is told another time than it is. Instead every row and file of the site becomes a day older at the end of each
day, so that the service itself finds what is due: A/A trials, the canary, and what expires.
"""

import os
import random
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction

from bench.chaos.load import Load, share_answered
from bench.chaos.run import asking, open_series, unfinished
from bench.chaos.stage import Stage
from bench.month.figures import measure
from bench.month.verdict import DayFigures
from bench.replay.faults_run import last_change
from server.core import clock
from server.core.tasks import publish
from server.lab.models import Boot, Canary, Machine, Session, Trial
from server.operations.pulse import broker, pulses
from server.reports.models import Delivery
from server.results.models import KeptMonth

# What a day has; each machine measures each series and each head, and has an A/A trial.
HEADS, SERIES, TALKS, LOGINS = 1, 1, 15, 2
_DAY = timedelta(days=1)
_PATIENCE_SECONDS = 300.0
_LOOK_SECONDS = 1.0
_CANARY_SECONDS = 3.0
_TRIES = 5
_NAME, _WORD = "reader", "a word of a bench"


class StuckError(Exception):
    """A day's work did not come to its end."""


@dataclass
class Month:
    stage: Stage
    say: Callable[[str], None]
    load: Load = field(init=False)
    days: list[DayFigures] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.load = Load(self.stage, open_series)
        User.objects.create_user(_NAME, password=_WORD, is_staff=True)

    def play(self, days: int) -> None:
        """Two days of long ago, whose rows come to the age at which they leave after a third of the `days`."""
        for number in (-1, 0):
            self._day(number)
        grow_older(self.stage, _until_they_leave(days // 3))
        for number in range(1, days + 1):
            self.days.append(self._day(number))

    def _day(self, number: int) -> DayFigures:
        began, moment = time.monotonic(), clock.now()
        dice = random.Random(1000 * self.stage.seed + number)  # noqa: S311 (mails, no secrets)
        with asking(self.stage) as readers:
            for place in range(max(HEADS, SERIES, TALKS, LOGINS)):
                self._put_in(place, dice)
            self._wait(lambda: _left(moment))
        _tell("reports.digests")
        self._clean()
        day = measure(self.stage, number, time.monotonic() - began)
        reads = [read for reader in readers for read in reader.reads]
        day.told |= {
            "sessions": Session.objects.filter(created_at__gte=moment).count(),
            "boots": Boot.objects.filter(ended_at__gte=moment).count(),
            "mails in": len(self.load.mails),
            "mails out": Delivery.objects.filter(sent_at__gte=moment).count(),
            "reads": len(reads),
            "unanswered": len(share_answered(reads, [])[2]),
        }
        self.load.mails.clear()
        told = ", ".join(f"{name} {figure:.0f}" for name, figure in day.told.items())
        self.say(f"day {number}: {day.seconds:.0f} s, {told}; {day.named}")
        grow_older(self.stage, 1)
        return day

    def _put_in(self, place: int, dice: random.Random) -> None:
        if place < HEADS:
            self.load.push()
        if place < SERIES:
            self.load.post(dice)
        if place < TALKS:
            self.load.talk(f"talk-{time.time_ns()}")
        if place < LOGINS:
            log_in(self.stage.web_port, _WORD)
            log_in(self.stage.second_port, "a wrong word")

    def _wait(self, left: Callable[[], dict[str, int]]) -> None:
        moved = told = time.monotonic()
        seen = last_change()
        _tell("upkeep.canary")
        while found := left():
            now = time.monotonic()
            if (last := last_change()) != seen:
                moved, seen = now, last
            if now - moved > _PATIENCE_SECONDS:
                raise StuckError(f"nothing has moved for {now - moved:.0f} s: {found}")
            if now - told > _CANARY_SECONDS:
                # Every five minutes, as beat does it.
                _tell("upkeep.canary")
                told = now
            time.sleep(_LOOK_SECONDS)

    def _clean(self) -> None:
        """Twice instead of 24 times a day: what the first marks, the second takes."""
        for _ in range(2):
            began = datetime.now(UTC)
            _tell("upkeep.clean")
            self._wait(lambda began=began: {} if _is_over("upkeep.clean", began) else {"upkeep.clean": 1})  # type: ignore[misc]


def _tell(task: str) -> None:
    publish(task, ())


def _is_over(task: str, began: datetime) -> bool:
    with broker() as client:
        return any(one.name == task and one.well_at and one.well_at >= began for one in pulses(client))


def _left(moment: datetime) -> dict[str, int]:
    """What of the day is not at its end."""
    measured = Trial.objects.filter(purpose=Trial.Purpose.NOISE, created_at__gte=moment, state__in=Trial.FINAL)
    machines = Machine.objects.exclude(pk__in=measured.values("machines"))
    canaries = Canary.objects.exclude(passed_at__gte=moment)
    found = {**unfinished(), "A/A trials": machines.count(), "canaries": canaries.count()}
    return {name: count for name, count in found.items() if count}


def log_in(port: int, word: str) -> None:
    """As a person does it in a browser that is new."""
    cookies, url = CookieJar(), f"http://127.0.0.1:{port}/login/"
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
    browser.open(url).close()
    mark = next(cookie.value for cookie in cookies if cookie.name == "csrftoken") or ""
    form = {"csrfmiddlewaretoken": mark, "username": _NAME, "password": word}
    asked = urllib.request.Request(url, urlencode(form).encode(), {"Referer": url})
    browser.open(asked).close()


def _until_they_leave(days: int) -> int:
    """How many days older rows of today have to become to be over in so many days, with one month kept."""
    today = datetime.now(UTC).date()
    last = (today.replace(day=1) - _DAY).replace(day=1)
    return max((today - last).days - days, 0)


_COLUMNS = """
SELECT t.relname, array_agg(a.attname::text) FROM pg_class t JOIN pg_attribute a ON a.attrelid = t.oid
WHERE t.relnamespace = 'public'::regnamespace AND t.relkind IN ('r', 'p') AND NOT t.relispartition
AND a.atttypid = 'timestamptz'::regtype AND a.attnum > 0 AND NOT a.attisdropped
GROUP BY t.relname ORDER BY t.relname
"""
# What is alive said a moment ago that it is: no night lies in between.
_NOW = {
    ("lab_asker", "asked_at"),
    ("lab_machine", "last_seen_at"),
    ("lab_builder", "last_seen_at"),
    ("lab_roundmark", "last_at"),
}


def grow_older(stage: Stage, days: int) -> None:
    """Rows first, so that no file is older than the row that names it for longer than a moment."""
    for left in reversed(range(_TRIES)):
        try:
            _age_rows(days)
            break
        except OperationalError:
            # A sweep held rows in another order.
            if not left:
                raise
    _age_files(Path(settings.STATE_DIR), days)
    _age_files(stage.temporary, days)


def _age_rows(days: int) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_COLUMNS)
        for table, columns in cursor.fetchall():
            told = ", ".join(f'"{name}" = "{name}" - %(by)s::interval' for name in columns if (table, name) not in _NOW)
            if told:
                cursor.execute(f'UPDATE "{table}" SET {told}', {"by": f"{days} days"})  # noqa: S608 (of the catalogue)
        # The calendar stands still and sessions move through its months: none is gone through for good.
        KeptMonth.objects.all().delete()


def _age_files(folder: Path, days: int) -> None:
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            found = path.stat()
            os.utime(path, (found.st_atime - days * 86_400, found.st_mtime - days * 86_400))
