"""What the agent tells the guard on its command line: NAME=VALUE..., `--`, then the command."""


class Orders:
    """Sizes are bytes, 0 means no limit. `lifeline` and `report` are descriptors.

    No dataclass: importing that module takes longer than most of what a guard watches.
    """

    def __init__(self, words: list[str]) -> None:
        end = words.index("--")
        self.argv = words[end + 1 :]
        pairs = [word.partition("=") for word in words[:end]]
        numbers = {name: int(value) for name, _, value in pairs if name != "directory"}
        self.directories = [value for name, _, value in pairs if name == "directory"]
        self.lifeline = numbers["lifeline"]
        self.report = numbers["report"]
        self.file = numbers.get("file", 0)
        self.log = numbers.get("log", 0)
        self.memory = numbers.get("memory", 0)
        self.processes = numbers.get("processes", 0)
        self.cpu = numbers.get("cpu", 0)
        self.disk = numbers.get("disk", 0)

    @property
    def is_limited(self) -> bool:
        return bool(self.memory or self.processes or self.disk or self.cpu)
