"""`tidemark`: what a service knows, for people and for scripts.

Lists take the filters of the API as NAME=VALUE: `tidemark findings regressed_on=zen3`. The service says which
it knows. To act needs a token (--token-file). Exit codes: 0, 1 the service could not be asked or refused, 2 something
matches --fail-on, 64 wrong usage.
"""

import argparse
import itertools
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from tidemark.acts import ACTS, act, add_acts, token_of
from tidemark.api import ApiError, Row, Tidemark
from tidemark.nouns import EVENT, NOISE, NOUNS, PAIR, POINT, VALUE, WHAT_IF, Noun, cells, field, of_service, points
from tidemark.output import FILES, FORMATS

# Lists that begin with what came last: what is new stands before what is known. The queue is read whole.
_NEWEST_FIRST = ("findings", "series", "sessions", "builds", "attempts", "messages")
OK, TROUBLE, MATCHED, USAGE = 0, 1, 2, 64
_SEVERAL = 2
_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """2 is the answer of --fail-on: wrong usage has the code that the BSDs gave it."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def parser() -> argparse.ArgumentParser:
    found = _Parser(prog="tidemark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument(
        "--server",
        default=os.environ.get("TIDEMARK_SERVER", ""),
        help="address of the service (or TIDEMARK_SERVER), such as https://tidemark.example.org",
    )
    found.add_argument("--timeout", type=float, default=30.0, help="seconds for one answer (30)")
    commands = found.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, noun in NOUNS.items():
        _listing(commands.add_parser(name, help=f"list {name}"), noun)
    watch = commands.add_parser("watch", help="print rows as they come, until it is interrupted")
    watch.add_argument("noun", choices=(*_NEWEST_FIRST, "queue"))
    watch.add_argument("--interval", type=float, default=30.0, help="seconds between two questions (30)")
    watch.add_argument("--for", dest="seconds", type=float, default=float("inf"), help="end after so many seconds")
    watch.add_argument("--known", action="store_true", help="begin with the rows that are there already")
    _listing(watch, None, ("lines", "ndjson", "csv"))
    show = commands.add_parser("show", help="one row with all that is known of it, as JSON")
    show.add_argument("noun", choices=NOUNS)
    show.add_argument("id")
    anything = commands.add_parser("get", help="any address of the API, as the service answers it")
    anything.add_argument("path", help="without /api/v1/, such as machines/zen3-1 or series/12/history")
    anything.add_argument("filters", nargs="*", metavar="NAME=VALUE", help="parameters of the API, format too")
    anything.add_argument("--etag", metavar="FILE", help="print only what is not as it was when this file was written")
    timeline = commands.add_parser("timeline", help="the points of a timeline")
    timeline.add_argument(
        "which", nargs="+", metavar="ID | NAME=VALUE", help="its id, or filters of timelines that leave one"
    )
    _written(timeline)
    events = commands.add_parser("events", help="print what happens as it happens, until it is interrupted")
    events.add_argument("--for", dest="seconds", type=float, default=float("inf"), help="end after so many seconds")
    events.add_argument("--limit", type=int, default=0, help="end after so many rows")
    events.add_argument("filters", nargs="*", metavar="NAME=VALUE", help="subject, id (each may come again), after")
    _written(events, ("lines", "ndjson", "csv"))
    noise = commands.add_parser("noise", help="what a machine shows between equal kernels, cell by cell")
    noise.add_argument("machine")
    _listing(noise, NOISE)
    samples = commands.add_parser("samples", help="every value of a session, as it comes")
    samples.add_argument("id", type=int)
    _written(samples, ("table", "csv", "json", "ndjson", *FILES))
    samples.add_argument("filters", nargs="*", metavar="NAME=VALUE", help="filters of the API, such as case=fault-4k")
    foresight = commands.add_parser("what-if", help="the smallest change that so many boots would show on a machine")
    foresight.add_argument("machine")
    foresight.add_argument("boots", type=int, help="of each kernel")
    _listing(foresight, WHAT_IF)
    pair = commands.add_parser("compare", help="two kernels side by side, from what is stored of them")
    pair.add_argument("kernels", metavar="BASE..PATCHED", help="commits, or build:ID")
    _listing(pair, PAIR)
    again = commands.add_parser("reproduce", help="the document by which one case can be run again, as JSON")
    again.add_argument("series", type=int)
    again.add_argument("case", help="BENCHMARK/CASE")
    add_acts(commands)
    completion = commands.add_parser(
        "completion", help='words for the completion of bash: eval "$(tidemark completion)"'
    )
    completion.set_defaults(server="none")
    return found


def _written(one: argparse.ArgumentParser, formats: Sequence[str] = ("table", "csv", "json", "ndjson")) -> None:
    one.add_argument("--format", choices=formats, default=formats[0])
    one.add_argument("--columns", help="names with commas between them; a.b is the b of a")


def _listing(one: argparse.ArgumentParser, noun: Noun | None, *formats: Sequence[str]) -> None:
    _written(one, *formats)
    one.add_argument("filters", nargs="*", metavar="NAME=VALUE", help="filters of the API; a name may come twice")
    one.add_argument("--limit", type=int, help="rows at most; 0: all (50, with --fail-on all)")
    if noun is None or noun.outcome:
        of = f" of {noun.outcome}" if noun else ""
        one.add_argument("--fail-on", metavar="VALUES", default="", help=f"exit with 2 when a row has one{of}")


def entry() -> NoReturn:
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    chosen = parser().parse_args(arguments)
    if chosen.command == "completion":
        print(_COMPLETION.format(commands=" ".join([*NOUNS, *_QUESTIONS, *ACTS])))
        return OK
    if not chosen.server:
        print("tidemark: name the service: --server ADDRESS, or TIDEMARK_SERVER in the environment", file=sys.stderr)
        return USAGE
    try:
        with Tidemark(chosen.server, token=token_of(chosen), timeout=chosen.timeout) as service:
            return _run(service, chosen)
    except ApiError as error:
        print(f"tidemark: {error}", file=sys.stderr)
        # The service says what it does not know of a question as this program says it of an option.
        return USAGE if error.code in {"usage", "invalid"} else TROUBLE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _say_no_more()
        return OK


def _say_no_more() -> None:
    """Who reads has enough; nothing more can be said there."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _check_usage(chosen: argparse.Namespace) -> None:
    """Raises ApiError for what would leave out a field that is read here, or asks for a form that is not."""
    if getattr(chosen, "columns", None):
        chosen.columns = ",".join(name.strip() for name in chosen.columns.split(","))
    if (getattr(chosen, "limit", None) or 0) < 0:
        raise ApiError(f"--limit {chosen.limit}: write 0 or more", code="usage")
    asked = {word.partition("=")[0] for word in [*getattr(chosen, "filters", ()), *getattr(chosen, "which", ())]}
    if "fields" in asked and (chosen.command in _READ or _words(chosen)):
        raise ApiError("fields= leaves out what is read here: choose with --columns what is printed", code="usage")
    if "format" in asked and chosen.command != "get":
        raise ApiError("format= is written --format here", code="usage")


# Whose answers are looked into, whatever is printed.
_READ = {"compare", "timeline", "watch"}


def _run(service: Tidemark, chosen: argparse.Namespace) -> int:
    _check_usage(chosen)
    if chosen.command in ACTS:
        for line in act(service, chosen):
            # A mail may hold signs that would move a terminal's cursor.
            print("".join(sign if sign.isprintable() else " " for sign in line))
        return OK
    return _QUESTIONS.get(chosen.command, _rows)(service, chosen)


def _rows(service: Tidemark, chosen: argparse.Namespace) -> int:
    noun, limit = NOUNS[chosen.command], _limit(chosen)
    _check_outcomes(service, noun, chosen)
    rows = service.rows(noun.path, _narrowed(chosen, noun, _query(chosen.filters)), limit=limit)
    return _listed(chosen, noun, _counted(rows, long=limit is None))


def _show(service: Tidemark, chosen: argparse.Namespace) -> int:
    return _document(service.get(f"{NOUNS[chosen.noun].path}/{chosen.id}"))


def _reproduce(service: Tidemark, chosen: argparse.Namespace) -> int:
    return _document(service.get(f"series/{chosen.series}/cases/{chosen.case}"))


def _document(told: Any) -> int:
    json.dump(told, sys.stdout, ensure_ascii=False, indent=1)
    print()
    return OK


def _timeline(service: Tidemark, chosen: argparse.Namespace) -> int:
    which: list[str] = chosen.which
    by_id = len(which) == 1 and which[0].isdecimal()
    told = service.get(f"timelines/{which[0]}") if by_id else service.get("timeline", _query(which))
    _write(chosen, points(told), POINT)
    return OK


def _events(service: Tidemark, chosen: argparse.Namespace) -> int:
    told = service.events(_query(chosen.filters), seconds=chosen.seconds)
    return _listed(chosen, EVENT, itertools.islice(told, chosen.limit or None))


def _noise(service: Tidemark, chosen: argparse.Namespace) -> int:
    return _cells(service, chosen, NOISE, f"machines/{chosen.machine}/noise", {})


def _what_if(service: Tidemark, chosen: argparse.Namespace) -> int:
    return _cells(service, chosen, WHAT_IF, WHAT_IF.path, {"machine": chosen.machine, "boots": str(chosen.boots)})


def _cells(
    service: Tidemark, chosen: argparse.Namespace, noun: Noun, path: str, more: dict[str, str | list[str]]
) -> int:
    """In a table each row says of which machine it is, and whether that is evidence."""
    query = _narrowed(chosen, noun, {**_query(chosen.filters), **more, "page_size": "500"})
    return _listed(chosen, noun, itertools.islice(service.lines(path, query), _limit(chosen)))


def _compare(service: Tidemark, chosen: argparse.Namespace) -> int:
    _check_outcomes(service, PAIR, chosen)
    return _listed(chosen, PAIR, cells(service.get(PAIR.path, _pair(chosen))))


def _watch(service: Tidemark, chosen: argparse.Namespace) -> int:
    noun = NOUNS[chosen.noun]
    _check_outcomes(service, noun, chosen)
    return _listed(chosen, noun, _coming(service, noun, chosen), ends=True)


def _samples(service: Tidemark, chosen: argparse.Namespace) -> int:
    path, query = f"sessions/{chosen.id}/samples", _query(chosen.filters)
    if chosen.columns:
        query["fields"] = chosen.columns
    if chosen.format not in FILES:
        _write(chosen, service.lines(path, query), VALUE)
        return OK
    for piece in service.pieces(path, {**query, "format": chosen.format}):
        sys.stdout.buffer.write(piece)
    return OK


def _narrowed(chosen: argparse.Namespace, noun: Noun, query: dict[str, str | list[str]]) -> dict[str, str | list[str]]:
    """For what is printed, and what `--fail-on` reads, alone: the service computes no more. Documents are whole."""
    if chosen.format not in {"table", "csv"} or "fields" in query:
        return query
    columns = chosen.columns.split(",") if chosen.columns else noun.columns
    read = (noun.outcome,) if _words(chosen) else ()
    return {**query, "fields": of_service([*columns, *read])}


def _anything(service: Tidemark, chosen: argparse.Namespace) -> int:
    """The answer of an address as it comes; with --etag only one that is not known yet."""
    if not _PATH.fullmatch(chosen.path):
        raise ApiError(f"{chosen.path}: write a path of the API, and what is asked as NAME=VALUE", code="usage")
    query = _query(chosen.filters)
    if chosen.etag is None:
        _pass_on(service.pieces(chosen.path, query))
        return OK
    mark = Path(chosen.etag)
    found = service.newer(chosen.path, query, etag=_known(mark))
    if found is None:
        print("tidemark: as it was", file=sys.stderr)
        return OK
    _pass_on([found[0]])
    # Not before all is told: what was not written is asked for again.
    try:
        mark.write_text(f"{found[1]}\n", encoding="ascii")
    except OSError as error:
        raise ApiError(f"--etag: {mark} cannot be written: {error.strerror}", code="usage") from error
    return OK


def _known(mark: Path) -> str:
    try:
        return mark.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ApiError(f"--etag: {mark} cannot be read: {error}", code="usage") from error


def _pass_on(pieces: Iterable[bytes]) -> None:
    """Bytes as they are, but that a line on a terminal ends."""
    last = b"\n"
    for piece in pieces:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        last = piece[-1:] or last
    if last == b"}":
        sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()


_PATH = re.compile(r"/?\w[\w:.-]*(?:/\w[\w:.-]*)*/?", re.ASCII)


_USUAL_LIMIT = 50


def _limit(chosen: argparse.Namespace) -> int | None:
    """None: all rows. What decides over a script's end may stand in any of them."""
    given: int | None = chosen.limit
    if given is None:
        return None if getattr(chosen, "fail_on", "") else _USUAL_LIMIT
    return given or None


def _words(chosen: argparse.Namespace) -> list[str]:
    return [word for word in getattr(chosen, "fail_on", "").split(",") if word]


def _check_outcomes(service: Tidemark, noun: Noun, chosen: argparse.Namespace) -> None:
    """A word that no row can have would stop nothing, silently. The service knows its filter's words."""
    for word in _words(chosen):
        if noun.outcomes and word not in noun.outcomes:
            raise ApiError(f"--fail-on: {word} is none of {', '.join(noun.outcomes)}", code="usage")
        if noun.filter:
            service.get(noun.path, {noun.filter: word, "page_size": "1"})


def _listed(chosen: argparse.Namespace, noun: Noun, rows: Iterable[Row], *, ends: bool = False) -> int:
    """Print them; 2 when one has an outcome that was asked for, with which a list that goes on for ever `ends`."""
    wanted = set(_words(chosen))
    met = []

    def seen() -> Iterator[Row]:
        for row in rows:
            if field(row, noun.outcome) in wanted:
                met.append(row)
            yield row
            if met and ends:
                return

    left = seen()
    try:
        _write(chosen, left, noun.columns)
        sys.stdout.flush()
    except BrokenPipeError:
        _say_no_more()
        # Whether something matches does not depend on who reads it.
        if wanted and not ends:
            for _ in left:
                pass
    return MATCHED if met else OK


def _write(chosen: argparse.Namespace, rows: Iterable[Row], columns: Sequence[str]) -> None:
    FORMATS[chosen.format](rows, chosen.columns.split(",") if chosen.columns else columns, sys.stdout)


def _query(filters: Iterable[str]) -> dict[str, str | list[str]]:
    query: dict[str, str | list[str]] = {}
    pairs = [word.partition("=") for word in filters]
    for name, several in itertools.groupby(sorted(pairs, key=lambda pair: pair[0]), key=lambda pair: pair[0]):
        found = list(several)
        if not all(mark for _, mark, _ in found):
            raise ApiError(f"{name} is no filter: write NAME=VALUE", code="usage")
        query[name] = [value for *_, value in found] if len(found) >= _SEVERAL else found[0][2]
    return query


def _pair(chosen: argparse.Namespace) -> dict[str, str | list[str]]:
    base, mark, patched = chosen.kernels.partition("..")
    if not (base and mark and patched):
        raise ApiError(f"{chosen.kernels}: write BASE..PATCHED", code="usage")
    return {**_query(chosen.filters), "base": base, "patched": patched}


def _counted(rows: Iterable[Row], *, long: bool) -> Iterator[Row]:
    """The rows; on a terminal a count of them while all are fetched."""
    console = Console(stderr=True)
    if not (long and console.is_terminal):
        yield from rows
        return
    with Progress(SpinnerColumn(), TextColumn("{task.completed} rows"), console=console, transient=True) as progress:
        yield from progress.track(rows, total=None)


_sleep = time.sleep


# Of rows that still change and are no longer among the newest; each is asked for by itself.
_MOST_UNRIPE = 100
_RIPE = {"done", "failed", "canceled", "built", "expired", "lost", "superseded", "invalid", "refused"}


def _coming(service: Tidemark, noun: Noun, chosen: argparse.Namespace) -> Iterator[Row]:
    """Rows that come after those of the first look, and those of which the outcome changes, the oldest first.

    The outcome of a series is there long after the series.
    """
    query, ends = _query(chosen.filters), time.monotonic() + chosen.seconds
    known: dict[object, Row] = {_key(row): row for row in service.rows(noun.path, query, limit=_USUAL_LIMIT)}
    if chosen.known:
        yield from reversed(list(known.values()))
    while time.monotonic() < ends:
        _sleep(min(chosen.interval, max(0.0, ends - time.monotonic())))
        found: dict[object, Row] = {}
        for row in service.rows(noun.path, query):
            if _key(row) in known and len(found) >= _USUAL_LIMIT and noun.path != "queue":
                break
            found[_key(row)] = row
        unripe = [key for key, row in known.items() if key not in found and not _is_ripe(row)]
        for key in unripe[-_MOST_UNRIPE:] if noun.path != "queue" else ():
            found[key] = service.get(f"{noun.path}/{key}")
        news = [
            row for key, row in found.items() if key not in known or _outcome(noun, row) != _outcome(noun, known[key])
        ]
        known = {**(known if noun.path != "queue" else {}), **found}
        yield from reversed(news)


def _key(row: Row) -> object:
    """Kinds of work that wait in one queue count for themselves."""
    return row["key"] if "key" in row else (row["kind"], row["id"]) if "place" in row else row["id"]


def _outcome(noun: Noun, row: Row) -> object:
    return field(row, noun.outcome or "why")


def _is_ripe(row: Row) -> bool:
    """Whether nothing more comes of it; a series that was applied has its finding, or waits for it."""
    return row.get("state", "done") in _RIPE or bool(row.get("finding"))


# What is no plain list, by its command.
_QUESTIONS: Mapping[str, Callable[[Tidemark, argparse.Namespace], int]] = {
    "watch": _watch,
    "show": _show,
    "get": _anything,
    "timeline": _timeline,
    "events": _events,
    "noise": _noise,
    "samples": _samples,
    "what-if": _what_if,
    "compare": _compare,
    "reproduce": _reproduce,
}

# The words of the first place; behind it filters follow, which the service knows best.
_COMPLETION = """\
_tidemark() {{
    local word=${{COMP_WORDS[COMP_CWORD]}}
    [ "$COMP_CWORD" -eq 1 ] && COMPREPLY=($(compgen -W "{commands} completion" -- "$word"))
}}
complete -o default -F _tidemark tidemark"""
