"""What the agent can say about a system: this one, or one whose files it is shown."""

from tidemark_agent.probe.facts import Facts, facts_from, facts_of, probe_system
from tidemark_agent.probe.hardware import CoreKind
from tidemark_agent.probe.identity import Uarch, uarch_name, uarch_table

__all__ = ["CoreKind", "Facts", "Uarch", "facts_from", "facts_of", "probe_system", "uarch_name", "uarch_table"]
