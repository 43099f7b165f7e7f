"""A server that plays Jenkins 2.532 as it was recorded: for tests and benches, with its faults at hand."""

from tests.jenkins.server.server import JenkinsServer
from tests.jenkins.server.timing import RECORDED, Timing

__all__ = ["RECORDED", "JenkinsServer", "Timing"]
