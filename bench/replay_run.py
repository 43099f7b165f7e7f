"""Playing the founding cases, and the same series over and over, on the database that Django is set up on."""

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.kit import KitError
from bench.replay_ends import failures, recomputed
from bench.replay_expected import EXPECTED
from bench.replay_lines import Line, expected_table
from bench.replay_noise import measure_noise
from bench.replay_player import Player, playing
from bench.replay_rates import false_alarms, splits
from bench.replay_rows import Study
from bench.replay_shares import Rate, rates_table
from bench.replay_studies import CASES, UNPUBLISHED, read_studies
from bench.replay_walk import NAME as WALKED
from bench.replay_walk import walked
from server.sources.models import Series

_NULL = "nothing"


def main(*arguments: str) -> None:
    options = _parser().parse_args(arguments)
    # Each step of each session is a line of the service's log.
    logging.disable(logging.CRITICAL if options.quiet else logging.WARNING)
    try:
        studies = read_studies(options.cases, unpublished=options.spread)
    except KitError as error:
        sys.exit(f"bench: {error}")
    wanted = [studies[name] for name in (*EXPECTED, WALKED)][: 1 if options.no_cases else None]
    with playing([*wanted, studies["folio-copy-batch"].without_effect(_NULL)], seed=options.seed) as player:
        began = time.monotonic()
        measure_noise(player, options.noise)
        print(f"{options.noise} nights of A/A trials: {time.monotonic() - began:.0f} s", flush=True)
        lines = [] if options.no_cases else _cases(player, wanted)
        rates = _rates(player, options.rates) if options.rates else []
        lines += [failures(player), recomputed()]
        print(expected_table(lines[-2:]))
    sys.exit(0 if all(each.right for each in lines) and all(rate.holds for rate in rates) else 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.replay", description=__doc__)
    parser.add_argument("--cases", type=Path, default=CASES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spread", type=float, default=UNPUBLISHED, help="of rows without a published one")
    parser.add_argument("--noise", type=int, default=20, help="nights of A/A trials before")
    parser.add_argument("--rates", type=int, default=0, help="replays without effect, and with the published one")
    parser.add_argument("--no-cases", action="store_true", help="only the rates")
    parser.add_argument("--quiet", action="store_true", help="no log of the service at all")
    return parser


def _cases(player: Player, studies: Sequence[Study]) -> list[Line]:
    lines: list[Line] = []
    for study in studies:
        began = time.monotonic()
        if study.name == WALKED:
            found = list(walked(player))
        else:
            finding = player.play(study.name)
            series = Series.objects.filter(mailing_list__name=study.name).latest("pk")
            found = list(EXPECTED[study.name](finding, series, study))
            if finding is not None:
                print(f"{study.name}: {finding.headline}")
        lines += found
        print(f"{expected_table(found)}\n({time.monotonic() - began:.1f} s)\n", flush=True)
    return lines


def _rates(player: Player, tries: int) -> list[Rate]:
    def progress(text: str) -> None:
        print(f"\r{text}   ", end="", file=sys.stderr, flush=True)

    rates = [
        false_alarms(player, _NULL, tries, progress=progress),
        splits(player, "folio-copy-batch", tries, progress=progress),
    ]
    print(f"\n{rates_table(rates)}")
    return rates
