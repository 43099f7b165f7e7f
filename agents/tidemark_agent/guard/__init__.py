"""The parts of the guard. They run in a process of their own, without the rest of the agent: see command.py."""
