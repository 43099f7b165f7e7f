"""The machines of the replay: what the probe would tell of the published models, from what is publicly known of them.

Zen 3 is told as the thread tested it: rep_good without erms and fsrm, by which the copy routines are chosen.
"""

from bench.replay_model import Model

KIB, MIB = 1 << 10, 1 << 20
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
