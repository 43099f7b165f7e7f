"""Machines with AMD's CPUs."""

from tests.agent.probe.machines.parts import CPU, NODE, X86_FLAGS, Files, cache, dmi, node, policy, system, x86_cpus

AMD = "AuthenticAMD"
_TIERS = "sys/devices/virtual/memory_tiering"


def zen3() -> Files:
    """A desktop with boost on and SMT, whose BIOS strings are partly not filled in."""
    threads = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}
    return {
        **system(x86_cpus(4, (AMD, 25, 33, 2), "AMD Ryzen 9 5950X"), cpus="0-3", memory_kb=32_803_264),
        **cache(threads, 0, 1, "Data", "32K"),
        **cache(threads, 1, 1, "Instruction", "32K"),
        **cache(threads, 2, 2, "Unified", "512K"),
        **cache(dict.fromkeys(range(4), "0-3"), 3, 3, "Unified", "32768K", ways=16),
        **policy(0, scaling_driver="acpi-cpufreq", scaling_governor="schedutil", scaling_min_freq=2_200_000),
        **policy(1, scaling_driver="acpi-cpufreq", scaling_governor="schedutil", scaling_max_freq=3_400_000),
        **dmi(sys_vendor="ASUS", product_name="System Product Name", board_name="PRIME X570-P"),
        **dmi(bios_vendor="American Megatrends Inc.", bios_version="5003", chassis_type="Default string"),
        f"{CPU}/cpufreq/boost": "1\n",
        f"{CPU}/smt/control": "on\n",
        f"{CPU}/smt/active": "1\n",
        f"{CPU}/vulnerabilities/meltdown": "Not affected\n",
        f"{CPU}/vulnerabilities/retbleed": "Mitigation: untrained return thunk; SMT enabled with STIBP protection\n",
        "sys/kernel/debug/sched/preempt": "none voluntary (full) lazy \n",
    }


def zen4() -> Files:
    """A server of two nodes with pools of huge pages."""
    cpus = x86_cpus(4, (AMD, 25, 17, 1), "AMD EPYC 9654 96-Core Processor", flags=f"{X86_FLAGS} fsrm")
    pool = "hugepages/hugepages-2048kB"
    return {
        **system(cpus, cpus="0-3", memory_kb=791_000_000, cmdline="ro preempt=none clearcpuid=fsrm,514"),
        **node(0, "0-1", 395_500_000, "10 32"),
        **node(1, "2-3", 395_500_000, "32 10"),
        f"{NODE}/online": "0-1\n",
        f"sys/kernel/mm/{pool}/nr_hugepages": "96\n",
        f"sys/kernel/mm/{pool}/free_hugepages": "90\n",
        f"{NODE}/node0/{pool}/nr_hugepages": "64\n",
        f"{NODE}/node0/{pool}/free_hugepages": "60\n",
        f"{NODE}/node1/{pool}/nr_hugepages": "32\n",
        f"{NODE}/node1/{pool}/free_hugepages": "30\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled": "always inherit madvise [never]\n",
    }


def zen5_with_cxl() -> Files:
    """A server with an expander of memory: node 1 has no CPUs and comes through a CXL region's DAX device."""
    cpus = x86_cpus(2, (AMD, 26, 2, 1), "AMD EPYC 9755 128-Core Processor", flags=f"{X86_FLAGS} fsrm avx_vnni")
    bits = ",".join(f"{bit:04X}" for bit in (0, 0x70, 0x129, 0x184, 0x18B, 0x244))
    near = f"{NODE}/node1/access0/initiators"
    return {
        **system(cpus, cpus="0-1", memory_kb=528_000_000),
        **node(0, "0-1", 396_000_000, "10 50"),
        **node(1, "", 132_000_000, "255 10"),
        f"{NODE}/online": "0-1\n",
        f"{near}/node0/cpulist": "0-1\n",
        f"{near}/read_latency": "240\n",
        f"{near}/read_bandwidth": "56000\n",
        "sys/bus/cxl/devices/region0/resource": "0x10050000000\n",
        "sys/bus/cxl/devices/dax_region0/dax0.0/target_node": "1\n",
        "sys/bus/cxl/devices/mem0/numa_node": "0\n",
        f"{_TIERS}/memory_tier4/nodelist": "0\n",
        f"{_TIERS}/memory_tier22/nodelist": "1\n",
        f"{CPU}/modalias": f"cpu:type:x86,ven0002fam001Amod0002:feature:,{bits}\n",
    }


def zen5_with_cxl_from_firmware() -> Files:
    """The firmware made memory of the expander: only the region's address tells which node it is."""
    files = zen5_with_cxl()
    del files["sys/bus/cxl/devices/dax_region0/dax0.0/target_node"]
    return {
        **files,
        "sys/devices/system/memory/block_size_bytes": "80000000\n",
        f"{NODE}/node0/memory0/state": "online\n",
        f"{NODE}/node1/memory512/state": "online\n",
        "sys/bus/cxl/devices/region0/resource": "0x10000000000\n",
    }


def strix_point() -> Files:
    """Two kinds of one generation's core, which only the kernel's own view of the topology tells apart."""
    kinds = {0: "performance", 1: "performance", 2: "efficiency", 3: "efficiency"}
    return {
        **system(x86_cpus(4, (AMD, 26, 0x24, 0), "AMD Ryzen AI 9"), cpus="0-3", memory_kb=32_000_000),
        **{f"sys/kernel/debug/x86/topo/cpus/{cpu}": f"online: 1\ncpu_type:  {kind}\n" for cpu, kind in kinds.items()},
    }
