"""What a site holds at the end of a day: memory, descriptors, threads, connections, files, rows, and leftovers."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import redis
from django.conf import settings
from django.contrib.sessions.models import Session as Login
from django.db import connection
from django.db.models import Q

from bench.chaos.stage import Stage
from bench.month.verdict import CONNECTIONS, DESCRIPTORS, FILES, MEMORY, ORPHANS, OVERDUE, STRAYS, THREADS, DayFigures
from bench.processes import family, shared_mb
from scripts.stack.servers import redis_socket
from scripts.stack.supervisor import Supervisor, marked_processes
from server.builds.expiry import LARGE_KINDS, nameless_files
from server.builds.models import Artifact, BuildState
from server.builds.storage import artifact_store
from server.core import clock
from server.core.access.tries import GIVEN_UP, WINDOW
from server.core.models import Begun, Tries
from server.detection.lifecycle.needed import sessions_in_use
from server.lab.models import Attempt, Conditions, Session
from server.lab.trials.kernels import builds_in_use
from server.results.models import KeptKind, PackedValues
from server.sources.mirror import mirror
from server.sources.models import MailingList, Series

# What is watched; the other programs of the stage stand for the world outside.
_OURS = {"postgres": "postgres", "redis": "redis", "web": "web", "web-2": "web", "worker": "worker", "beat": "beat"}
# Housekeeping lets what is a day old go, and comes once an hour.
_GRACE = timedelta(days=1, hours=2)
_HOUR = timedelta(hours=1)
_YEAR = 12


@dataclass(frozen=True)
class Ours:
    """One process of the service: of a program itself, or of those that it started."""

    kind: str
    pid: int


def measure(stage: Stage, number: int, seconds: float) -> DayFigures:
    day = DayFigures(number, seconds)
    _look_at_processes(stage, day)
    _look_at_connections(stage, day)
    _look_at_files(stage, day)
    day.named[ORPHANS] = [*_orphans(stage), *_unheld_refs()]
    day.named[OVERDUE] = [f"{count} {name}" for name, count in _overdue() if count]
    day.told["rows"] = sum(_rows().values())
    return day


def _look_at_processes(stage: Stage, day: DayFigures) -> None:
    figures: dict[tuple[str, str], float] = defaultdict(float)
    for one in ours(stage):
        folder = Path(f"/proc/{one.pid}")
        with suppress(OSError):
            figures[MEMORY, one.kind] += shared_mb(one.pid, "Pss_Anon")
            figures[DESCRIPTORS, one.kind] += len(list((folder / "fd").iterdir()))
            figures[THREADS, one.kind] += len(list((folder / "task").iterdir()))
    day.bounded |= figures
    day.named[STRAYS] = list(_strays(stage))


def ours(stage: Stage) -> Iterator[Ours]:
    control = Supervisor(stage.places)
    yield Ours("supervisor", control.pid())
    for program in control.processes():
        kind = _OURS.get(str(program["name"]))
        for pid, depth in family(int(program["pid"])) if kind else ():
            yield Ours(f"{kind}'s" if depth else str(kind), pid)


def _strays(stage: Stage) -> Iterator[str]:
    """Processes of the stack that have lost whoever started them."""
    known = {pid for pid, _ in family(Supervisor(stage.places).pid())}
    for pid in marked_processes(stage.local):
        words = Path(f"/proc/{pid}/cmdline")
        with suppress(OSError):
            if pid not in known:
                yield words.read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80]


def _look_at_connections(stage: Stage, day: DayFigures) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT application_name, count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() GROUP BY 1"
        )
        for name, count in cursor.fetchall():
            if name != "tidemark bench":
                day.bounded[CONNECTIONS, f"postgres of {name or 'nobody'}"] = count
        cursor.execute("SELECT pg_database_size(current_database())")
        day.told["database MB"] = cursor.fetchone()[0] / 2**20
    with redis.Redis(unix_socket_path=str(redis_socket(stage.places))) as client:
        day.bounded[CONNECTIONS, "redis"] = client.info("clients")["connected_clients"]
        day.told["redis keys"] = client.dbsize()


def _look_at_files(stage: Stage, day: DayFigures) -> None:
    state = Path(settings.STATE_DIR)
    for name in ("uploads", "scratch", "agents", "tokens"):
        day.bounded[FILES, name] = len(_files(state / name))
    # Those of programs that run lie there, too: they are as many on every day.
    day.bounded[FILES, "tmp"] = len(list(stage.temporary.rglob("*")))
    day.bounded[FILES, "incoming"] = len(_files(state / "artifacts" / "incoming"))
    large = Artifact.objects.filter(kind__in=LARGE_KINDS, removed_at=None)
    day.bounded[FILES, "kernels"] = large.order_by().values("sha256").distinct().count()
    stored = list(artifact_store().every())
    day.told["artifacts"] = len(stored)
    day.told["artifacts MB"] = sum(one.size for one in stored) / 2**20
    for name, folder in (("mirror", state / "mirror.git"), ("lists", state / "lists")):
        found = _files(folder)
        day.told[f"{name} files"] = len(found)
        day.told[f"{name} MB"] = sum(_size(path) for path in found) / 2**20
    day.told["logs MB"] = sum(_size(path) for path in _files(stage.places.log)) / 2**20


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _orphans(stage: Stage) -> Iterator[str]:
    """Files that nobody knows of any more, and that housekeeping had its time for."""
    state, oldest = Path(settings.STATE_DIR), time.time() - _GRACE.total_seconds()
    yield from (f"artifact {one.sha256[:12]}" for one in nameless_files() if one.stored_at < clock.now() - _GRACE)
    passing = [state / "uploads", state / "scratch", state / "artifacts" / "incoming"]
    for path in (path for folder in passing for path in folder.glob("*")):
        with suppress(OSError):
            if path.stat().st_mtime < oldest:
                yield str(path.relative_to(stage.local))
    repositories = [state / "mirror.git", *(state / "lists").glob("*/*.git")]
    for path in (path for repository in repositories for path in _files(repository)):
        with suppress(OSError):
            passes = path.name.startswith("tmp_") or path.suffix == ".lock"
            if passes and path.stat().st_mtime < oldest:
                yield str(path.relative_to(stage.local))
    lists = set(MailingList.objects.values_list("name", flat=True))
    yield from (f"lists/{path.name}" for path in (state / "lists").glob("*") if path.name not in lists)


def _unheld_refs() -> Iterator[str]:
    """Commits of the mirror that are kept for series that are not there."""
    known = set(Series.objects.values_list("pk", flat=True))
    for prefix in ("refs/tidemark/series", "refs/tidemark/bases"):
        for ref in mirror().output("for-each-ref", "--format=%(refname)", prefix).decode().split():
            number = ref.removeprefix(f"{prefix}/").partition("/")[0]
            if number.isdigit() and int(number) not in known:
                yield ref


def _rows() -> Counter[str]:
    with connection.cursor() as cursor:
        names = [name for name in connection.introspection.table_names(cursor) if not name.startswith("django_")]
        found: Counter[str] = Counter()
        for name in names:
            cursor.execute(f'SELECT count(*) FROM ONLY "{name}"')  # noqa: S608 (names of our own tables)
            found[name] = cursor.fetchone()[0]
        return found


def _overdue() -> Iterator[tuple[str, int]]:
    """Rows and files that should have left by now: the policies asked once more, by other questions than theirs."""
    now = clock.now()
    yield "logins", Login.objects.filter(expire_date__lt=now - _HOUR).count()
    yield "tries", Tries.objects.filter(since__lt=now - WINDOW - _HOUR).count()
    yield "tasks begun", Begun.objects.filter(at__lt=now - GIVEN_UP - _HOUR).count()
    unused = now - timedelta(days=settings.ARTIFACT_DAYS) - _HOUR
    kernels = Artifact.objects.filter(kind__in=LARGE_KINDS, removed_at=None, build__state=BuildState.BUILT)
    kernels = kernels.filter(Q(build__used_at__lt=unused) | Q(build__used_at=None, build__state_since__lt=unused))
    yield "files of kernels", kernels.exclude(build__in=builds_in_use()).count()
    for kind, months in settings.KEEP_MONTHS.items():
        old = _over(months, now) if months else []
        yield kind, _kept(kind, old)


def _over(months: int, now: datetime) -> list[int]:
    """Sessions whose months are over and that nobody uses."""
    index = now.year * _YEAR + now.month - 1 - months
    first = datetime(index // _YEAR, index % _YEAR + 1, 1, tzinfo=UTC)
    old = list(Session.objects.filter(created_at__lt=first, state__in=Session.FINAL).values_list("pk", flat=True))
    in_use = sessions_in_use(old)
    return [pk for pk in old if pk not in in_use]


def _kept(kind: str, sessions: list[int]) -> int:
    if kind == KeptKind.SAMPLES:
        return PackedValues.objects.filter(boot__session__in=sessions).count()
    if kind == KeptKind.CONDITIONS:
        return Conditions.objects.filter(boot__session__in=sessions).count()
    if kind == KeptKind.LOGS:
        return Attempt.objects.filter(session__in=sessions).exclude(log="").count()
    return _steps_kept(sessions)


def _steps_kept(sessions: list[int]) -> int:
    from server.results.archive import rows_of  # noqa: PLC0415 (it brings a library as large as all the rest)

    return sum(rows_of(KeptKind.TRANSITIONS, pk).count() for pk in sessions)
