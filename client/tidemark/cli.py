"""`tidemark`: what a service knows, for people and for scripts.

Lists take the filters of the API as NAME=VALUE: `tidemark findings regressed_on=zen3`. The service says which
it knows. To act needs a token (--token-file). Exit codes: 0, 1 the service could not be asked or refused, 2 something
matches --fail-on, 64 wrong usage.
"""

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from tidemark.acts import ACTS, act, add_acts, token_of
from tidemark.api import ApiError, Row, Tidemark
from tidemark.nouns import NOUNS, PAIR, POINT, VALUE, WHAT_IF, Noun, cells, field, points
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
    _listing(watch, None, ("lines", "ndjson", "csv"))
    show = commands.add_parser("show", help="one row with all that is known of it, as JSON")
    show.add_argument("noun", choices=NOUNS)
    show.add_argument("id")
    timeline = commands.add_parser("timeline", help="the points of a timeline")
    timeline.add_argument("id", type=int)
    _written(timeline)
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
        print(
            _COMPLETION.format(
                commands=" ".join(
                    [*NOUNS, "watch", "show", "timeline", "samples", "what-if", "compare", "reproduce", *ACTS]
                )
            )
        )
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


def _run(service: Tidemark, chosen: argparse.Namespace) -> int:
    match chosen.command:
        case name if name in ACTS:
            for line in act(service, chosen):
                # A mail may hold signs that would move a terminal's cursor.
                print("".join(sign if sign.isprintable() else " " for sign in line))
        case "show":
            json.dump(service.get(f"{NOUNS[chosen.noun].path}/{chosen.id}"), sys.stdout, ensure_ascii=False, indent=1)
            print()
        case "reproduce":
            document = service.get(f"series/{chosen.series}/cases/{chosen.case}")
            json.dump(document, sys.stdout, ensure_ascii=False, indent=1)
            print()
        case "timeline":
            _write(chosen, points(service.get(f"timelines/{chosen.id}")), POINT)
        case "samples":
            _samples(service, chosen)
        case "what-if":
            query = {**_query(chosen.filters), "machine": chosen.machine, "boots": str(chosen.boots)}
            # In a table each row says of which machine it is, and whether that is evidence.
            rows = service.lines(WHAT_IF.path, {**query, "page_size": "500"})
            return _listed(chosen, WHAT_IF, itertools.islice(rows, _limit(chosen)))
        case "compare":
            _check_outcomes(service, PAIR, chosen)
            return _listed(chosen, PAIR, cells(service.get(PAIR.path, _pair(chosen))))
        case "watch":
            noun = NOUNS[chosen.noun]
            _check_outcomes(service, noun, chosen)
            return _listed(chosen, noun, _coming(service, noun, chosen), ends=True)
        case name:
            _check_outcomes(service, NOUNS[name], chosen)
            limit = _limit(chosen)
            rows = _counted(service.rows(NOUNS[name].path, _query(chosen.filters), limit=limit), long=limit is None)
            return _listed(chosen, NOUNS[name], rows)
    return OK


def _samples(service: Tidemark, chosen: argparse.Namespace) -> None:
    path, query = f"sessions/{chosen.id}/samples", _query(chosen.filters)
    if chosen.columns:
        query["fields"] = chosen.columns
    if chosen.format not in FILES:
        _write(chosen, service.lines(path, query), VALUE)
        return
    for piece in service.pieces(path, {**query, "format": chosen.format}):
        sys.stdout.buffer.write(piece)


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


# The words of the first place; behind it filters follow, which the service knows best.
_COMPLETION = """\
_tidemark() {{
    local word=${{COMP_WORDS[COMP_CWORD]}}
    [ "$COMP_CWORD" -eq 1 ] && COMPREPLY=($(compgen -W "{commands} completion" -- "$word"))
}}
complete -o default -F _tidemark tidemark"""
