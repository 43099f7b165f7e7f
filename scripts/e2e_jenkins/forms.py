"""The forms of requests that were recorded with a real controller. Nothing else leaves during the run.

Three are of the run's own housekeeping and were not recorded: fetching agent.jar, and deleting what the run has made.
"""

import re
from collections import Counter
from urllib.parse import parse_qsl

_NAME = r"[^/?]+"
RECORDED = {
    f"POST /job/{_NAME}/buildWithParameters": {"delay"},
    "GET /queue/api/json": {"tree"},
    r"GET /queue/item/\d+/api/json": set(),
    r"POST /queue/cancelItem": {"id"},
    "GET /api/json": {"tree"},
    f"GET /computer/{_NAME}/api/json": {"tree"},
    "GET /computer/api/json": {"tree"},
    f"GET /job/{_NAME}/api/json": {"tree"},
    f"GET /job/{_NAME}/api/xml": {"tree", "xpath", "wrapper"},
    rf"GET /job/{_NAME}/\d+/api/json": {"tree"},
    rf"GET /job/{_NAME}/\d+/logText/progressiveText": {"start"},
    rf"POST /job/{_NAME}/\d+/stop": set(),
    f"POST /computer/{_NAME}/toggleOffline": {"offlineMessage"},
    f"POST /computer/{_NAME}/changeOfflineCause": set(),
    f"POST /computer/{_NAME}/doDisconnect": {"offlineMessage"},
    "POST /computer/doCreateItem": set(),
    f"GET /computer/{_NAME}/config.xml": set(),
    f"POST /computer/{_NAME}/config.xml": set(),
    f"GET /computer/{_NAME}/jenkins-agent.jnlp": set(),
    "POST /createItem": {"name"},
    f"GET /job/{_NAME}/config.xml": set(),
    f"POST /job/{_NAME}/config.xml": set(),
}
HOUSEKEEPING = {
    "GET /jnlpJars/agent.jar": set[str](),
    f"POST /job/{_NAME}/doDelete": set[str](),
    f"POST /computer/{_NAME}/doDelete": set[str](),
}


class StrayRequestError(Exception):
    """A request of a form that was never recorded was about to leave."""


class Forms:
    """Told of each request before it leaves; `counts` says how often each form was used."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def check(self, method: str, target: str) -> None:
        path, _, query = target.partition("?")
        names = {name for name, _ in parse_qsl(query, keep_blank_values=True)}
        for form, allowed in (RECORDED | HOUSEKEEPING).items():
            if re.fullmatch(form, f"{method} {path}") and names <= allowed:
                self.counts[form.replace(_NAME, "NAME").replace(r"\d+", "N")] += 1
                return
        raise StrayRequestError(f"{method} {target} is of no recorded form")
