"""Sessions as full as the service lets one boot be: what a page or an answer costs at the worst."""

from datetime import timedelta

from django.db import connection

from server.detection.models import Comparison, Finding, NoiseProfile, Verdict
from server.lab.models import CoreType, Machine, Session
from server.results.models import Metric
from tests.builders import EPOCH, build_case, build_comparison, build_finding, build_metric, build_version

# 25 cases of ten metrics on 16 kinds of cores are 4000 cells; 25 values of each are 100 000 of a boot.
CASES, METRICS, CORE_TYPES, VALUES = 25, 10, 16, 25
CELLS = CASES * METRICS * CORE_TYPES

_FILL = """
INSERT INTO results_packedvalues
    (boot_id, metric_id, core_type_id, version_id, recorded_at, first_case, cases, warmups, ends, "values")
SELECT boot.id, metric.id, core.id, %(version)s, now(), row.cases[1], row.cases, row.warmups, row.ends, numbers.list
FROM lab_boot boot, results_metric metric, lab_coretype core,
     (SELECT array_agg(id::int ORDER BY id) cases, array_agg(1) warmups,
             array_agg(%(values)s * (place %% 8 + 1) ORDER BY id) ends
      FROM (SELECT id, row_number() OVER (ORDER BY id) - 1 place FROM results_case WHERE name LIKE 'crowd-%%') cell
      GROUP BY place / 8) row
     CROSS JOIN LATERAL (SELECT array_agg(1000.25 + (n - 1) %% %(values)s + 1) list
                         FROM generate_series(1, %(values)s * cardinality(row.cases)) n) numbers
WHERE boot.session_id = %(session)s AND boot.state = 'measured' AND core.machine_id = %(machine)s
  AND metric.name LIKE 'crowd-%%'
"""


def crowd(session: Session) -> None:
    """Give each measured boot all the cells and values that it may have."""
    _names(session.machine)
    version = build_version(build_case("crowd-0")).pk
    given = {"session": session.pk, "machine": session.machine_id, "version": version, "values": VALUES}
    with connection.cursor() as cursor:
        cursor.execute(_FILL, given)


def crowd_comparisons(session: Session) -> None:
    """A judged comparison of each cell; one in a hundred of them moved."""
    _names(session.machine)
    first = build_comparison(session, Verdict.UNCHANGED, case=build_case("crowd-0"), metric=build_metric("crowd-0"))
    kept = {name: value for name, value in vars(first).items() if not name.startswith("_") and name != "id"}
    rows = []
    for number, (case, metric, core_type) in enumerate(_cells(session.machine)):
        verdict = Verdict.REGRESSED if number % 100 == 99 else Verdict.UNCHANGED
        cell = {"case_id": case, "metric_id": metric, "core_type_id": core_type, "verdict": verdict}
        rows.append(Comparison(**(kept | cell)))
    first.delete()
    Comparison.objects.bulk_create(rows, batch_size=1000)


def crowd_noise(machine: Machine) -> None:
    """A profile of each cell."""
    _names(machine)
    NoiseProfile.objects.bulk_create(
        NoiseProfile(
            machine=machine,
            case_id=case,
            metric_id=metric,
            core_type_id=core_type,
            comparisons=50,
            false_alarms=0,
            rejections=2,
            change_95=0.004,
            boot_sd=0.001,
            mde=0.003,
            changes=[0.001] * 50,
            last_at=EPOCH + timedelta(days=1),
        )
        for case, metric, core_type in _cells(machine)
    )


def finding_of(session: Session) -> Finding:
    assert session.series is not None
    return build_finding(session.series)


def _names(machine: Machine) -> None:
    for number in range(CASES):
        build_case(f"crowd-{number}", runs=VALUES)
    for number in range(METRICS):
        build_metric(f"crowd-{number}")
    missing = CORE_TYPES - machine.core_types.count()
    CoreType.objects.bulk_create(CoreType(machine=machine, name=f"kind-{n}", cpus="0") for n in range(missing))


def _cells(machine: Machine) -> list[tuple[int, int, int]]:
    cases = [build_case(f"crowd-{number}").pk for number in range(CASES)]
    metrics = list(Metric.objects.filter(name__startswith="crowd-").values_list("pk", flat=True))
    core_types = list(machine.core_types.values_list("pk", flat=True))
    return [(case, metric, core_type) for case in cases for metric in metrics for core_type in core_types]
