"""Commands that come by mail."""

from typing import ClassVar

from django.db import models

from server.core.states import Stateful, state_check
from server.lab.models import Trial
from server.reports.models.report import Delivery, Report
from server.sources.models import Message


class Verb(models.TextChoices):
    RETEST = "retest", "measure all of it again"
    TEST = "test", "measure some of it again"
    ACCEPT = "accept", "it is a known trade-off"
    INVALID = "invalid", "it is wrong"
    DUP = "dup", "another finding tells of it"
    FIX = "fix", "a commit with this subject mends it"
    STOP = "stop", "no more mails"


class CommandState(models.TextChoices):
    WAITING = "waiting", "its sender is being proved"
    UNDER_WAY = "under-way", "being measured for it"
    DONE = "done", "done"
    REFUSED = "refused", "cannot be done, and its sender is told so"
    IGNORED = "ignored", "stored and not obeyed"


class MailCommand(Stateful):
    """One line `#tidemark ...` of a mail that answers one of ours, and what came of it; all that is obeyed, and why
    nothing else was.

    `line` 0 stands for a mail that has the mark somewhere else, or for the lines that were too many.
    """

    State = CommandState

    NEXT: ClassVar = {
        CommandState.WAITING: frozenset(
            {CommandState.UNDER_WAY, CommandState.DONE, CommandState.REFUSED, CommandState.IGNORED}
        ),
        CommandState.UNDER_WAY: frozenset({CommandState.DONE}),
    }

    class Role(models.TextChoices):
        AUTHOR = "author", "author of what was measured"
        TRUSTED = "trusted", "trusted sender"
        TRIAGER = "triager", "user of this site who may decide about findings"
        MAINTAINER = "maintainer", "maintainer of what is changed"
        READER = "reader", "one of those our mail went to"

    message = models.ForeignKey(Message, on_delete=models.PROTECT, related_name="commands")
    delivery = models.ForeignKey(
        Delivery, on_delete=models.PROTECT, related_name="commands", help_text="The mail of ours that it answers."
    )
    line = models.PositiveIntegerField(help_text="In the text of its mail, from 1.")
    text = models.CharField(max_length=1000, blank=True)
    verb = models.CharField(max_length=10, choices=Verb.choices, blank=True, help_text="Empty: none was understood.")
    sender = models.CharField(max_length=320, blank=True, help_text="Lower case.")
    role = models.CharField(max_length=10, choices=Role.choices, blank=True, help_text="By which it was obeyed.")
    trial = models.ForeignKey(
        Trial, null=True, blank=True, on_delete=models.PROTECT, related_name="commands", help_text="Asked for by it."
    )
    answer = models.ForeignKey(
        Report,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="commands",
        help_text="What was answered.",
    )
    # Of a mail that was obeyed: by either another copy of it is known.
    by_name = models.CharField(max_length=64, blank=True, db_index=True, help_text="Hash of sender and Message-ID.")
    by_text = models.CharField(
        max_length=64, blank=True, db_index=True, help_text="Hash of what its signature covers of it."
    )
    tried_at = models.DateTimeField(null=True, blank=True, help_text="When its sender was last looked for.")

    class Meta:
        constraints = [
            state_check(CommandState, "mail_command_state_known"),
            models.UniqueConstraint(fields=["message", "line"], name="mail_command_once"),
            models.CheckConstraint(
                condition=models.Q(verb__in=["", "retest", "test", "accept", "invalid", "dup", "fix", "stop"]),
                name="mail_command_verb_known",
            ),
        ]
        indexes = [
            # What the sweep looks for, a few among very many, and what scripts and pages ask for.
            models.Index(fields=["state", "-id"], name="mail_command_in_state"),
            models.Index(fields=["sender", "-id"], name="mail_command_of_sender"),
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.text} ({self.sender})"


class ReadingMark(models.Model):
    """How far one of the service's readers has come in what is only added to: up to this id."""

    reader = models.CharField(max_length=20, unique=True)
    up_to = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.reader}: {self.up_to}"
