"""The fleet of a replay as rows: machines that are physical but for the emulator, cases, metrics, tokens, trees."""

from collections.abc import Iterable

from bench.replay_model import Model
from bench.replay_models import BY_UARCH
from bench.replay_rows import Row, Study
from server.builds.models import KernelConfig, Toolchain
from server.core.models import ApiToken
from server.core.tokens import issue_token
from server.lab.models import CoreType, Machine, Microarchitecture
from server.lab.scheduling.builders import local_builder
from server.results.models import Benchmark, Case, Metric
from server.sources.models import MailingList, Tree

# As the published practice: 7 boots a side, in each of them 3 runs that count after one that does not.
BOOTS_PER_SIDE, RUNS, WARMUP = 7, 4, 1
_VERSION = "1"


def enlist(studies: Iterable[Study]) -> dict[str, str]:
    """Make the rows of what these studies need; returns the tokens of machines and of the builder, by their names."""
    studies = list(studies)
    for row in (row for study in studies for row in study.rows):
        _case(row)
    builder = local_builder()
    tokens = {builder.name: issue_token(name=builder.name, scope=ApiToken.Scope.BUILDER, subject=builder.name)}
    for uarch in sorted({uarch for study in studies for uarch in study.uarchs}):
        machine = _machine(BY_UARCH[uarch], [row for study in studies for row in study.rows if row.uarch == uarch])
        tokens[machine.name] = issue_token(name=machine.name, scope=ApiToken.Scope.MACHINE, subject=machine.name)
    return tokens


def _case(row: Row) -> None:
    benchmark = Benchmark.objects.get_or_create(
        name=row.benchmark, defaults={"title": row.benchmark, "version": _VERSION}
    )[0]
    numbers = {"title": row.case, "runs": RUNS, "warmup": WARMUP}
    Case.objects.get_or_create(benchmark=benchmark, name=row.case, defaults=numbers)
    # Counters come with the conditions of each boot.
    if not row.is_counter:
        told = {"title": row.metric, "unit": row.unit, "better": row.better}
        Metric.objects.get_or_create(benchmark=benchmark, name=row.metric, defaults=told)


def _machine(model: Model, rows: Iterable[Row]) -> Machine:
    uarch = Microarchitecture.objects.get_or_create(
        name=model.uarch, defaults={"arch": model.arch, "title": model.model_name}
    )[0]
    config = KernelConfig.objects.get_or_create(name=f"replay-{model.arch}", defaults={"arch": model.arch})[0]
    toolchain = Toolchain.objects.get_or_create(name="gcc", defaults={"compiler": "gcc"})[0]
    machine = Machine.objects.create(
        name=model.name,
        uarch=uarch,
        virtual=model.virtual,
        boot_driver="qemu" if model.virtual else "kexec",
        config=config,
        toolchain=toolchain,
        boots_per_side=BOOTS_PER_SIDE,
        cases=sorted({f"{row.benchmark}/{row.case}" for row in rows}),
    )
    CoreType.objects.bulk_create(CoreType(machine=machine, name=name, cpus="") for name in model.core_types)
    return machine


def tree_of(study: Study) -> Tree:
    """A tree that is interested in the study's machines alone, and whose heads nobody measures."""
    fields = {"url": "file:///nowhere.git", "uarchs": study.uarchs, "heads_per_day": 0}
    return Tree.objects.get_or_create(name=study.name, defaults=fields)[0]


def list_of(study: Study) -> MailingList:
    fields = {"url": "file:///nowhere", "address": f"{study.name}@example.org", "tree": tree_of(study)}
    return MailingList.objects.get_or_create(name=study.name, defaults=fields)[0]
