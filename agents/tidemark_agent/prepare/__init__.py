"""Making a machine fit to measure on, saying whether it is, and putting it back as it was."""

from tidemark_agent.prepare.disturbances import disturbances, wait_until_quiet
from tidemark_agent.prepare.model import (
    SETTING_NAMES,
    CannotMeasureError,
    PrepareConfig,
    Setting,
    common_cpus,
    cpu_list,
    cpu_set,
    without_cpus,
)
from tidemark_agent.prepare.preparation import JOURNAL_NAME, Preparation
from tidemark_agent.prepare.sampler import Sampler, scheduling_noise

__all__ = [
    "JOURNAL_NAME",
    "SETTING_NAMES",
    "CannotMeasureError",
    "Preparation",
    "PrepareConfig",
    "Sampler",
    "Setting",
    "common_cpus",
    "cpu_list",
    "cpu_set",
    "disturbances",
    "scheduling_noise",
    "wait_until_quiet",
    "without_cpus",
]
