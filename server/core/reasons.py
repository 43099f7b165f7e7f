"""Why a row is in its state: a code for programs, and a sentence for people.

Programs read the code and nothing else; the sentence may say more, and may be worded anew at any time.
"""

from typing import Self

from django.db import models


class Reason(str):
    """A sentence with the code of what it says. A text that is made out of one has no code."""

    __slots__ = ("code",)
    code: str

    def __new__(cls, code: str, sentence: str = "") -> Self:
        made = super().__new__(cls, sentence)
        made.code = code
        return made

    def __reduce__(self) -> tuple[type["Reason"], tuple[str, str]]:
        """Copies keep the code."""
        return Reason, (self.code, str(self))

    def told(self, sentence: str) -> "Reason":
        """The same code in other words."""
        return Reason(self.code, sentence)

    def columns(self) -> dict[str, str]:
        """The fields of a row that is created for this reason."""
        return {"reason": str(self), "reason_code": self.code}


NONE = Reason("")


class Because(models.TextChoices):
    """All codes; the labels say what they mean. `Because.LOST("...")` is a reason."""

    # Work: builds, sessions, boots, power cycles, and their attempts.
    ATTEMPT_OPENED = "attempt-opened", "an attempt at it was opened"
    SUBMITTED = "submitted", "the dispatcher has accepted it"
    NOT_SUBMITTED = "not-submitted", "the dispatcher could not accept it; it is tried again"
    ARRIVED = "arrived", "an agent has come for it"
    CLAIMED = "claimed", "an agent works at it"
    ENDED = "ended", "its agent has ended, with the outcome that the sentence names"
    INFRASTRUCTURE = "infrastructure", "something of the lab or the service failed, not what was to be tried"
    STOPPED = "stopped", "its agent was told to stop"
    LOST = "lost", "its agent, its host or its run in the dispatcher is gone"
    NOT_DISPATCHED = "not-dispatched", "the dispatcher refused it"
    TOO_LATE = "too-late", "it took longer than it may"
    HOST_TROUBLE = "host-trouble", "its host is out of service, or was changed"
    WORK_OVER = "work-over", "its work was over already"
    GIVEN_UP = "given-up", "too many attempts brought nothing"
    NOT_WANTED = "not-wanted", "nobody wants it any more"
    WANTED_AGAIN = "wanted-again", "somebody wants it again"
    ASKED_AGAIN = "asked-again", "a person asked for it again"
    BY_PERSON = "by-person", "a person decided it"
    CHECK_ASKED = "check-asked", "the machine is to be checked"
    MOVED = "moved", "another machine or another kernel takes its place"
    EDITED = "edited", "its configuration or toolchain was edited"
    DOES_NOT_BUILD = "does-not-build", "the kernel does not build"
    BUILT_AGAIN = "built-again", "it was built again, as the same kernel"
    NOT_REPRODUCED = "not-reproduced", "built again, another kernel came out"
    EXPIRED = "expired", "its files were removed"
    DAMAGED = "damaged", "one of its files is damaged or missing"
    # Sessions, boots and trials.
    ALL_BOOTED = "all-booted", "all boots have a result"
    SAME_CODE = "same-code", "both kernels run the same code: there is nothing to measure"
    KERNEL_MISSING = "kernel-missing", "one of its kernels cannot be had"
    KERNEL_FAILS = "kernel-fails", "a kernel gives no measurement on the machine"
    TOO_FEW_BOOTS = "too-few-boots", "too few boots were measured"
    SESSION_OVER = "session-over", "its session ended without it"
    BOOT_FAILED = "boot-failed", "the boot gave no measurement; its outcome says how"
    MEASURED = "measured", "the boot was measured"
    LATE = "late", "measured, and told after its session had ended"
    QUARANTINED = "quarantined", "its machine is quarantined"
    MORE_BOOTS = "more-boots", "more boots are wanted before it is judged"
    WAITS = "waits", "it waits for machines or kernels"
    NO_MACHINE = "no-machine", "no machine can measure it"
    PLANNED = "planned", "its sessions are planned"
    JUDGED = "judged", "it was judged"
    NOT_MEASURED = "not-measured", "no machine measured it"
    NOT_JUDGED = "not-judged", "judging it took more than a worker has"
    POWER_FAILED = "power-failed", "the power could not be switched"
    POWER_SWITCHED = "power-switched", "the power was switched"
    # Series.
    LEFT_OUT = "left-out", "a mail that is not proved was left out"
    INCOMPLETE = "incomplete", "patches are missing"
    NOT_CHECKED = "not-checked", "its senders are not checked yet"
    IN_TURN = "in-turn", "its senders are not trusted: such series are checked one after the other"
    NOT_TRUSTED = "not-trusted", "a sender is not trusted, or not proved: a person lets it run"
    TRUSTED = "trusted", "all senders are trusted and proved"
    MAIL_DELETED = "mail-deleted", "the archive deleted one of its mails"
    REPLACED = "replaced", "a newer version has replaced it"
    APPROVED = "approved", "a person let it run"
    APPLIED = "applied", "it was applied to its base"
    DOES_NOT_APPLY = "does-not-apply", "it applies to no base that comes into question"
    REFUSED = "refused", "what it holds is not applied by anybody"
    WAITS_FOR_PREREQUISITE = "waits-for-prerequisite", "a patch that it needs has not come"
    TRIED_AGAIN = "tried-again", "applying it failed for reasons that are not its own; it is tried again"
    GIT_FAILED = "git-failed", "git failed on it again and again"
    # Mails.
    PULL_REQUEST = "pull-request", "a pull request"
    COVER_WITH_DIFF = "cover-with-diff", "a cover letter that holds a diff: the diff is not applied"
    NO_DIFF = "no-diff", "marked as a patch, but holds no diff"
    BY_PROGRAM = "by-program", "sent by a program: never a patch"
    NO_SENDER = "no-sender", "no usable From address"
    UNUSABLE = "unusable", "it could not be read"
    DELETED = "deleted", "the archive deleted it"
    NAMED_BY_US = "named-by-us", "it has no usable Message-ID"
    COPY = "copy", "another copy of a mail that is here"
    TWIN = "twin", "another mail with this Message-ID and subject was here first"
    PLACE_TAKEN = "place-taken", "its place in the series is taken by another mail"
    UNPROVED = "unproved", "its sender is not proved, and its series had been checked"
    DOUBTED = "doubted", "its sender is not proved, but others of that sender are"
    ROOT_TAKEN = "root-taken", "another series begins with the same Message-ID"
    NOT_GROUPED = "not-grouped", "it could not be made part of a series"
    HANDED_IN = "handed-in", "a person handed it in, no list brought it"
    # Findings, bisections, questions about machines.
    SUSPECTED = "suspected", "timelines moved"
    TAKEN_BACK = "taken-back", "later points took the suspicion back"
    MACHINE_EVENT = "machine-event", "it was an event of a machine"
    NOT_SEEN_AGAIN = "not-seen-again", "fresh boots do not show it"
    CONFIRMED = "confirmed", "judged from interleaved boots"
    LAYOUT_CHECKED = "layout-checked", "its layout is being checked"
    NOISE = "noise", "it was noise"
    LAYOUT = "layout", "it was the layout of the image"
    MACHINE = "machine", "it was the machine"
    SAME_CHANGE = "same-change", "another finding tells of the same change"
    REPORTED = "reported", "it was told by mail"
    ACCEPTED = "accepted", "a person accepted it"
    ACCEPTANCE_OVER = "acceptance-over", "its acceptance was withdrawn or has expired"
    FIXED = "fixed", "a commit mended it"
    ASSIGNED = "assigned", "a person looks after it from now on, or nobody does"
    REOPENED = "reopened", "a person says that it is not mended"
    SEARCHED = "searched", "its revision is being looked for"
    SEARCHED_AGAIN = "searched-again", "its revision is looked for once more"
    ENDS_VERIFIED = "ends-verified", "both ends were measured again"
    FOUND = "found", "the revision was found"
    RANGE = "range", "it is one of several revisions"
    NOT_FOUND = "not-found", "the revision could not be found"
    NOTHING_LEFT = "nothing-left", "nothing speaks for a change on the machine any more"
    ASKED = "asked", "it was asked"
    ANSWERED = "answered", "it was answered"
    # Reports and their mails.
    NOT_MODERATED = "not-moderated", "the list is not moderated"
    HELD_BACK = "held-back", "a person decides whether it is told"
    TEXT_CHANGED = "text-changed", "its finding says something else since it was written"
    TEXT_EDITED = "text-edited", "a person changed its text"
    HELD_BY_PERSON = "held-by-person", "a person holds it back"
    WITHDRAWN = "withdrawn", "its finding was withdrawn before anybody was told"
    INCOMPLETE_REPORT = "incomplete-report", "not all that it would have to say is known"
    REJECTED = "rejected", "a person rejected it"
    SENT = "sent", "it was sent"
    NOT_SENT = "not-sent", "it could not be sent"
    MUST_WAIT = "must-wait", "it is sent later"
    # Commands by mail.
    OBEYED = "obeyed", "it was done"
    MEASURED_FOR_IT = "measured-for-it", "a trial was asked for, and its answer is awaited"
    NOT_UNDERSTOOD = "not-understood", "no command is read in the line"
    NOT_DONE = "not-done", "what it asks for cannot be done"
    NOT_ALLOWED = "not-allowed", "its sender may not ask for it"
    NOT_PROVED = "not-proved", "nothing proves its sender"
    TARGET_OPEN = "target-open", "its signature does not cover which mail it answers"
    NOT_OWN_WORDS = "not-own-words", "it stands in a quotation, a signature, a patch, HTML or an attached file"
    BY_ROBOT = "by-robot", "a program sent it: never obeyed, never answered"
    OWN_MAIL = "own-mail", "a mail of this service came back"
    DOUBLED = "doubled", "the same command stands above it in its mail, or was obeyed from another copy of it"
    TOO_MANY = "too-many", "more commands than a mail, or a sender in a day, may give"
    # Comparisons.
    NO_DATA = "no-data", "a kernel gave too few values"
    UNDECIDED = "undecided", "the interval allows no verdict"
    NOT_DECIDABLE = "not-decidable", "more boots would not decide it"
    NOT_SEEN_AT_LAST = "not-seen-at-last", "an early look showed a change, all boots do not"
    ADJUSTED = "adjusted", "among so many cells it may be chance"
    CHECK_FAILED = "check-failed", "a check took the verdict away"
    SAME_IMAGE = "same-image", "both kernels are the same image: the difference is the machine's own"
    OTHER_MACHINE = "other-machine", "the machine changed between the boots of the session"

    def __call__(self, sentence: str = "") -> Reason:
        return Reason(self.value, sentence or str(self.label))


def known_codes() -> list[tuple[str, str]]:
    """All codes with their labels. Columns name this function: a new code changes no table."""
    return list(Because.choices)


def code_field(*, index: bool = False) -> "models.CharField[str, str]":
    """The column of a row's code."""
    return models.CharField(max_length=40, choices=known_codes, blank=True, default="", db_index=index)
