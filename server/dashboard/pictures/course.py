"""The course of a metric over revisions: one lane for each microarchitecture, under each other on one axis."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class CoursePoint:
    """`ratio` is the value beside that of the reference, as it is stored."""

    place: int
    sha: str
    subject: str
    author: str
    at: datetime
    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class CourseStep:
    """The level changes at this place."""

    place: int
    sha: str
    sentence: str
    href: str = ""


@dataclass(frozen=True, slots=True)
class CourseFlag:
    """A finding."""

    place: int
    href: str
    said: str


@dataclass(frozen=True, slots=True)
class CourseEvent:
    """Something that happened to the machine, not to the code."""

    place: int
    said: str


@dataclass(frozen=True, slots=True)
class CourseLane:
    key: str
    title: str
    better: str
    points: tuple[CoursePoint, ...]
    steps: tuple[CourseStep, ...] = ()
    flags: tuple[CourseFlag, ...] = ()
    events: tuple[CourseEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class Course:
    lanes: tuple[CourseLane, ...]
    min_effect: float
