"""Simulated machines: their models, the facts of a boot, and the values that they measure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from zlib import crc32

import numpy as np

from demo.lab.replay.studies import Kernel, Row, Study


@dataclass(frozen=True)
class Model:
    """One machine; `words` are its CPU flags, `more` the facts that only it tells."""

    uarch: str
    model_name: str
    arch: str
    words: str
    l1d_bytes: int
    l2_bytes: int
    llc_bytes: int
    cpus: int
    memory_gib: int
    microcode: str = ""
    numbers: tuple[int, int, int] = (-1, -1, -1)
    midr: str = ""
    core_types: tuple[str, ...] = ("all",)
    virtual: bool = False
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.uarch}-1"

    @property
    def vendor(self) -> str:
        if self.arch == "arm64":
            return "ARM"
        return "AuthenticAMD" if "AMD" in self.model_name else "GenuineIntel"


KIB, MIB = 1 << 10, 1 << 20
# The machines of the replay: what the probe would tell of the published models, from what is publicly known of them.
#
# The Zen 3 machine is told as its thread tells it: rep_good without erms and fsrm, by which copy routines are chosen.
# Others of its model have both; what a machine lacks, its firmware or its boot line may have taken from it.

_X86 = (
    "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 ht syscall nx "
    "pdpe1gb rdtscp lm constant_tsc rep_good pni pclmulqdq ssse3 fma cx16 sse4_1 sse4_2 movbe popcnt aes xsave avx "
    "f16c rdrand lahf_lm abm bmi1 avx2 smep bmi2 rdseed adx smap clflushopt clwb sha_ni xsaveopt xsavec xgetbv1 pku"
)
_AMD = "svm cr8_legacy sse4a misalignsse topoext perfctr_core perfctr_llc clzero wbnoinvd monitorx"
_AVX512 = "avx512f avx512dq avx512ifma avx512cd avx512bw avx512vl avx512_vbmi avx512_vnni avx512_bitalg gfni vaes"
_ARM = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"


MODELS = (
    Model(
        *("zen3", "AMD EPYC 7713 64-Core Processor", "x86_64", f"{_X86} {_AMD} invpcid vaes vpclmulqdq"),
        *(32 * KIB, 512 * KIB, 32 * MIB, 256, 512),
        microcode="0xa0011d5",
        numbers=(25, 1, 1),
    ),
    Model(
        *("zen4", "AMD EPYC 9J13 96-Core Processor", "x86_64", f"{_X86} {_AMD} {_AVX512} erms fsrm invpcid la57"),
        *(32 * KIB, MIB, 32 * MIB, 384, 768),
        microcode="0xa10113e",
        numbers=(25, 17, 1),
        more={"boost": False},
    ),
    Model(
        *("zen5", "AMD EPYC 9655 96-Core Processor", "x86_64"),
        f"{_X86} {_AMD} {_AVX512} erms fsrm invpcid la57 avx_vnni movdiri movdir64b avx512_vp2intersect",
        *(48 * KIB, MIB, 32 * MIB, 384, 1536),
        microcode="0xb002116",
        numbers=(26, 2, 1),
    ),
    Model(
        *("icelakex", "Intel(R) Xeon(R) Platinum 8358 CPU @ 2.60GHz", "x86_64"),
        f"{_X86} {_AVX512} erms fsrm invpcid vmx pdcm dca la57 tme split_lock_detect arch_capabilities",
        *(48 * KIB, 1280 * KIB, 48 * MIB, 128, 512),
        microcode="0xd0003b9",
        numbers=(6, 106, 6),
    ),
    Model(
        *("neoverse-n1", "Neoverse-N1", "arm64", f"{_ARM} ssbs"),
        *(64 * KIB, MIB, 32 * MIB, 160, 512),
        midr="0x00000000413fd0c1",
    ),
    Model(
        *("cix-p1", "Cortex-A720 and Cortex-A520", "arm64", f"{_ARM} ssbs sha3 sha512 sve sve2 i8mm bf16 bti mte"),
        *(64 * KIB, 512 * KIB, 12 * MIB, 12, 32),
        midr="0x00000000411fd811",
        core_types=("cortex-a720", "cortex-a520"),
    ),
    Model(
        *("virtual", "QEMU Virtual CPU", "arm64", f"{_ARM} sha3 sha512 sve"),
        *(64 * KIB, 512 * KIB, 0, 4, 40),
        midr="0x00000000000f0510",
        virtual=True,
        more={"hypervisor": "QEMU TCG", "virtualization": {"driver": "qemu"}},
    ),
)
BY_UARCH = {model.uarch: model for model in MODELS}


# By these features x86 kernels choose their routines that copy and clear.
_CHOOSING = ("rep_good", "erms", "fsrm", "fzrm", "fsrs", "fsrc")


def facts_of(model: Model) -> dict[str, Any]:
    """What one boot tells; the same at every boot."""
    flags = model.words.split() + (["hypervisor"] if model.virtual else [])
    family, number, stepping = model.numbers
    detected = {word: word in flags for word in _CHOOSING} if model.arch == "x86_64" else {}
    return {
        "uarch": model.uarch,
        "vendor": model.vendor,
        "model_name": model.model_name,
        "midr": model.midr,
        "family": family,
        "model": number,
        "stepping": stepping,
        "arch": model.arch,
        "flags": flags,
        "virtual": model.virtual,
        "hypervisor": "",
        "clock": "wall",
        "cpus": model.cpus,
        "memory_kb": model.memory_gib << 20,
        "microcode": model.microcode,
        "page_bytes": 4 * KIB,
        "l1d_bytes": model.l1d_bytes,
        "l2_bytes": model.l2_bytes,
        "llc_bytes": model.llc_bytes or None,
        "core_types": [{"name": name, "cpus": ""} for name in model.core_types],
        "alternatives": {"chosen_by": detected, "cleared": [], "detected": []},
        "preemption": "voluntary",
        "governor": "performance",
        "fingerprint": f"1-{sha256(model.name.encode()).hexdigest()[:24]}",
        **model.more,
    }


_WARM_UP_SLOWER = 1.06


@dataclass(frozen=True)
class Moment:
    """Which boot it is. The same moment always gives the same values, whoever asks and however often."""

    seed: int
    session: str
    position: int

    def generator(self, row: Row) -> np.random.Generator:
        name = " ".join((self.session, *row.cell))
        return np.random.default_rng([self.seed, self.position, crc32(name.encode())])


class Truth:
    """All rows of all studies, by study and cell."""

    def __init__(self, studies: Iterable[Study]) -> None:
        self.studies = {study.name: study for study in studies}
        self._rows = {study.name: {row.cell: row for row in study.rows} for study in self.studies.values()}

    def rows_of(self, kernel: Kernel, uarch: str) -> list[Row]:
        """The rows that a kernel gives on a machine: those of its study."""
        return [row for row in self._rows.get(kernel.study, {}).values() if row.uarch == uarch]


def values_of(row: Row, kernel: Kernel, moment: Moment, *, runs: int, warmup: int) -> list[float]:
    """All values of one cell in one boot, warm-up first, with six digits as a program would print them."""
    level = row.base * float(np.prod([row.steps[index - 1] for index in sorted(kernel.patches)]))
    spread = row.spreads[1 if kernel.patches else 0]
    generator = moment.generator(row)
    boot = generator.normal(0, spread.boots)
    noise = generator.normal(0, spread.runs, runs)
    values = level * np.exp(boot + noise - (spread.boots**2 + spread.runs**2) / 2)
    values[:warmup] *= _WARM_UP_SLOWER if row.better == "lower" else 1 / _WARM_UP_SLOWER
    return [float(f"{value:.6g}") for value in values]


def boot_values(
    rows: Sequence[Row], kernel: Kernel, moment: Moment, orders: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Measurements and counters of one boot, as the protocol writes them, for the cases of an assignment."""
    ordered = {(order["benchmark"], order["case"]): order for order in orders}
    measured, counted = [], []
    for row in rows:
        order = ordered.get((row.benchmark, row.case))
        if order is None:
            continue
        place = {"benchmark": row.benchmark, "case": row.case, "core_type": row.core_type}
        if row.is_counter:
            value = values_of(row, kernel, moment, runs=1, warmup=0)[0]
            counted.append({**place, "event": row.metric, "value": value})
            continue
        values = values_of(row, kernel, moment, runs=order["runs"], warmup=order["warmup"])
        told = {"version": order["version"], "metric": row.metric, "values": values, "warmup": order["warmup"]}
        measured.append({**place, **told})
    return measured, counted
