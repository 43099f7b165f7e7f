"""Temperatures, which of them is near where the hardware stops itself, and whether CPUs are slowed now."""

from collections.abc import Iterator
from dataclasses import dataclass

from tidemark_agent.prepare.files import KernelFiles

_THERMAL = "sys/class/thermal"
_HWMON = "sys/class/hwmon"
_MILLI = 1000
# Sensors that are not connected show 0, -128 or 255 degrees: none of these is believed.
_COLDEST, _HOTTEST = 1, 200
_TRIPS = {"critical", "hot"}
# Sensors of processors and memory: those of disks and radios say nothing about a measurement, and some say nonsense.
_DRIVERS = {
    "coretemp",
    "cpu_thermal",
    "jc42",
    "k10temp",
    "k8temp",
    "scmi_sensors",
    "scpi_sensors",
    "spd5118",
    "zenpower",
}
# Cooling devices that make a CPU slower; fans are cooling devices, too.
_SLOWING = ("Processor", "cpufreq", "cpuidle", "intel_powerclamp", "thermal-cpufreq", "thermal-idle")


@dataclass(frozen=True)
class Temperature:
    """In degrees Celsius; `limit` is the lowest at which the machine protects itself, None if it does not say."""

    name: str
    degrees: float
    limit: float | None


def temperatures(files: KernelFiles) -> Iterator[Temperature]:
    for target in files.names(_THERMAL, "thermal_zone[0-9]*/temp"):
        zone = target.removesuffix("/temp")
        limits = [
            _degrees(files, f"{trip.removesuffix('_type')}_temp")
            for trip in files.names(zone, "trip_point_[0-9]*_type")
            if files.text(trip) in _TRIPS
        ]
        yield from _reading(files, target, files.text(f"{zone}/type"), limits)
    for target in files.names(_HWMON, "hwmon[0-9]*/temp[0-9]*_input"):
        driver = files.text(target.rpartition("/")[0] + "/name")
        if driver in _DRIVERS:
            stem = target.removesuffix("_input")
            name = f"{driver} {files.text(f'{stem}_label')}".strip()
            yield from _reading(files, target, name, [_degrees(files, f"{stem}_crit")])


def slowed_by(files: KernelFiles) -> Iterator[str]:
    """Cooling devices that slow a CPU at this moment."""
    for target in files.names(_THERMAL, "cooling_device[0-9]*/cur_state"):
        kind = files.text(target.removesuffix("cur_state") + "type")
        state = files.text(target)
        if kind.startswith(_SLOWING) and state.isdecimal() and int(state) > 0:
            yield f"{kind} at step {state}"


def _reading(files: KernelFiles, target: str, name: str, limits: list[float | None]) -> Iterator[Temperature]:
    degrees = _degrees(files, target)
    if degrees is not None:
        yield Temperature(name or target, degrees, min((limit for limit in limits if limit), default=None))


def _degrees(files: KernelFiles, target: str) -> float | None:
    text = files.text(target)
    if not text.removeprefix("-").isdecimal() or not _COLDEST <= int(text) / _MILLI <= _HOTTEST:
        return None
    return int(text) / _MILLI
