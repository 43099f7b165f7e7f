"""Values of boots, with the comparisons that follow from them, written by the database itself as the product stores
them: 120 cells of a session, nine values of each in every boot.
"""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from django.db import connection

from bench.api.site import CASES_OF_SESSION, CELLS, KIND, RUNS, WARMUP, Site
from server.detection.noise.profiles import refresh_profiles
from server.lab.models import Machine

BOOTS = 6
VALUES_OF_SESSION = BOOTS * CELLS * RUNS
# Written by one statement: three million values.
_SESSIONS_AT_ONCE = 500

# The cells of a lab in their order: a trial measures some of its cases in a row, and that of its history.
_CELL = """
CREATE UNLOGGED TABLE bench_cell AS
SELECT c.place, c.id AS case_id, m.id AS metric_id, v.id AS version_id
FROM (SELECT id, benchmark_id, row_number() OVER (ORDER BY name <> 'fault-4k', id) - 1 AS place FROM results_case) c
JOIN results_metric m ON m.benchmark_id = c.benchmark_id
JOIN results_benchmarkversion v ON v.benchmark_id = c.benchmark_id
"""
_OF_SESSION = """
FROM lab_session x JOIN lab_coretype k ON k.machine_id = x.machine_id AND k.name = 'all'
JOIN bench_cell c ON c.place = 0 OR (c.place - 1 + 399 - x.trial_id %% 399) %% 399 < %(cases)s - 1
"""
# One cell of 20 moves where a session's question says that something does.
_COMPARISONS = f"""
INSERT INTO detection_comparison (session_id, case_id, metric_id, core_type_id, verdict, reason, reason_code,
    base_boots, patched_boots, base_mean, base_sd, patched_mean, patched_sd, ratio, ratio_low, ratio_high,
    p_value, p_adjusted, p_rank, family_size, min_effect, mde, flags, computed_at)
SELECT session, case_id, metric_id, core_type, verdict, '', CASE verdict WHEN 'inconclusive' THEN 'undecided' ELSE ''
    END, 3, 3, 1000, 4, 1000 * ratio, 5, ratio, ratio * 0.99, ratio * 1.01, 0.001, 0.01, 0.1, %(cells)s, 0.01, 0.012,
    '{{}}', at
FROM (SELECT *, CASE WHEN moves AND kind < 4 THEN 'regressed' WHEN moves AND kind < 6 THEN 'improved'
        WHEN dice = 7 THEN 'inconclusive' ELSE 'unchanged' END AS verdict,
        CASE WHEN moves AND kind < 4 THEN 1.02 + 0.04 * kind WHEN moves AND kind < 6 THEN 0.92 ELSE 1.001 END AS ratio
    FROM (SELECT x.id AS session, c.case_id, c.metric_id, k.id AS core_type, x.created_at AS at,
            {KIND} AS kind,
            (x.id * 31 + c.case_id * 7 + c.metric_id) %% 20 AS dice,
            (x.id * 31 + c.case_id * 7 + c.metric_id) %% 20 = 0 AS moves
        {_OF_SESSION} WHERE x.id = ANY(%(sessions)s)) AS cell) AS told
ON CONFLICT DO NOTHING
"""  # noqa: S608 (of our own words)
_VALUE = "1000 * (1 + 0.02 * random())"
# As server/results/packing.py packs them: so many cases of so many values find room in a row.
_CASES_OF_ROW = 1700 // (12 + 8 * RUNS)
_MEASUREMENTS = f"""
WITH cell AS (
    SELECT b.id AS boot, c.case_id, c.metric_id, k.id AS core_type, c.version_id, b.state_since AS at,
        row_number() OVER (PARTITION BY b.id, c.metric_id ORDER BY c.case_id) - 1 AS place
    {_OF_SESSION} JOIN lab_boot b ON b.session_id = x.id AND b.state = 'measured' WHERE x.id = ANY(%(sessions)s)
), row AS (
    SELECT boot, metric_id, core_type, version_id, at, array_agg(case_id ORDER BY case_id) AS cases,
        array_agg(%(warmup)s::int) AS warmups, array_agg({RUNS} * (place %% {_CASES_OF_ROW} + 1) ORDER BY place) AS ends
    FROM cell GROUP BY boot, metric_id, core_type, version_id, at, place / {_CASES_OF_ROW}
), stored AS (
    INSERT INTO results_packedvalues
        (boot_id, metric_id, core_type_id, version_id, recorded_at, first_case, cases, warmups, ends, "values")
    SELECT boot, metric_id, core_type, version_id, at, cases[1], cases, warmups, ends, numbers.list
    FROM row CROSS JOIN LATERAL (SELECT array_agg({_VALUE}) AS list FROM generate_series(1, {RUNS} * cardinality(cases))
    ) AS numbers ORDER BY boot, metric_id
    RETURNING cardinality("values") AS number
) SELECT sum(number) FROM stored
"""  # noqa: S608 (of our own words)
_CONDITIONS = """
INSERT INTO lab_conditions (boot_id, facts, document, console_tail)
SELECT id, '{}', %(document)s, repeat('[    1.000000] a line of the console' || chr(10), 40)
FROM lab_boot WHERE session_id = ANY(%(sessions)s) ON CONFLICT DO NOTHING
"""
_VERDICTS = """
INSERT INTO detection_findingverdict (verdict, reason, finding_id, uarch_id, comparison_id, mde)
SELECT DISTINCT ON (f.id, m.uarch_id) y.verdict, '', f.id, m.uarch_id, y.id, y.mde
FROM detection_finding f JOIN lab_session x ON x.trial_id = f.trial_id JOIN lab_machine m ON m.id = x.machine_id
    JOIN detection_comparison y ON y.session_id = x.id
WHERE f.series_id = %(wide)s ORDER BY f.id, m.uarch_id, abs(ln(y.ratio)) DESC ON CONFLICT DO NOTHING
"""


class Values:
    """Grows a site's values; how many there are is `count`."""

    def __init__(self, site: Site) -> None:
        self._site, self._done, self.count = site, 0, 0
        around = [{"case": f"case-{number}", "load": 0.25, "mhz": [3500] * 8} for number in range(CASES_OF_SESSION)]
        self._document = json.dumps({"settings": [], "samples": around})
        with connection.cursor() as cursor:
            cursor.execute(_CELL)

    def grow(self, count: int, say: Callable[[str], None]) -> None:
        """Until there are so many, or every session of the site has its own; then what PostgreSQL knows is fresh."""
        begun = time.monotonic()
        wanted = min(round(count / VALUES_OF_SESSION), len(self._site.sessions))
        while self._done < wanted:
            some = self._site.sessions[self._done : min(self._done + _SESSIONS_AT_ONCE, wanted)]
            self._write(some)
            self._done += len(some)
            say(f"{time.monotonic() - begun:6.0f} s: {self.count / 1e6:.1f} million values")
        for machine in Machine.objects.filter(name__startswith="old-"):
            refresh_profiles(machine)
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")
            cursor.execute("CHECKPOINT")
        say(f"{time.monotonic() - begun:6.0f} s: {self.count / 1e6:.1f} million values on {_size()}")

    def _write(self, sessions: Sequence[int]) -> None:
        names: dict[str, Any] = {
            "sessions": list(sessions), "cases": CASES_OF_SESSION, "cells": CELLS, "warmup": WARMUP,
            "document": self._document, "wide": self._site.wide.pk,
        }  # fmt: skip
        with connection.cursor() as cursor:
            # What they refer to was read from there a moment ago.
            cursor.execute("SET session_replication_role = replica")
            for statement in (_COMPARISONS, _MEASUREMENTS, _CONDITIONS, _VERDICTS):
                cursor.execute(statement, names)
                if statement is _MEASUREMENTS:
                    self.count += int(cursor.fetchone()[0])
            cursor.execute("SET session_replication_role = DEFAULT")


def _size() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_size_pretty(pg_database_size(current_database()))")
        return str(cursor.fetchone()[0])
