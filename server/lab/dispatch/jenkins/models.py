"""What the service knows of its Jenkins controller: its runs, nodes and jobs there, and how the controller answers."""

from django.db import models

from server.lab.models import Attempt


class JenkinsRun(models.Model):
    """One attempt as Jenkins sees it. Matched by the attempt's key alone: queue ids and numbers are given out again."""

    attempt = models.OneToOneField(Attempt, on_delete=models.CASCADE, related_name="jenkins_run")
    job = models.CharField(max_length=100)
    node = models.CharField(max_length=60, blank=True, help_text="Where it was built on, or has to be.")
    posted_at = models.DateTimeField(null=True, blank=True)
    queue_id = models.BigIntegerField(null=True, blank=True)
    controller_session = models.CharField(max_length=64, blank=True, help_text="X-Jenkins-Session of that answer.")
    number = models.PositiveIntegerField(null=True, blank=True, help_text="Of the build in its job.")
    boot_id = models.CharField(max_length=36, blank=True, help_text="Of the node's system when the build began.")
    why = models.TextField(blank=True, help_text="Why it waits, in Jenkins' words.")
    stuck = models.BooleanField(default=False)
    result = models.CharField(max_length=20, blank=True, help_text="SUCCESS, FAILURE, ABORTED ...")
    seen_at = models.DateTimeField(null=True, blank=True, help_text="When it was last seen in queue or builds.")
    absent_since = models.DateTimeField(null=True, blank=True)
    absent_looks = models.PositiveIntegerField(default=0)
    cancel_asked_at = models.DateTimeField(null=True, blank=True)
    stop_asked_at = models.DateTimeField(null=True, blank=True)
    disconnect_asked_at = models.DateTimeField(null=True, blank=True)

    console = models.TextField(
        blank=True, default="", help_text="How the console of a build ends that no agent has claimed."
    )

    class Meta:
        ordering = ["attempt"]

    def __str__(self) -> str:
        return f"{self.job} for {self.attempt.key}"


class JenkinsController(models.Model):
    """The one controller of this site: how it answers, and when the next request may leave."""

    url = models.CharField(max_length=300, unique=True)
    session = models.CharField(max_length=64, blank=True, help_text="X-Jenkins-Session: new at each of its starts.")
    version = models.CharField(max_length=60, blank=True)
    answered_at = models.DateTimeField(null=True, blank=True)
    unreachable_since = models.DateTimeField(null=True, blank=True)
    refused_since = models.DateTimeField(
        null=True, blank=True, help_text="When it first refused us and since then said nothing else; no alarm yet."
    )
    trouble = models.TextField(blank=True, help_text="What it answered, or why it did not.")
    alarm = models.TextField(blank=True, help_text="What only a person can mend: a token that is refused.")
    alarm_since = models.DateTimeField(null=True, blank=True)
    clock_skew_seconds = models.FloatField(null=True, blank=True, help_text="Its clock minus ours.")
    next_request_at = models.DateTimeField(null=True, blank=True, help_text="The rate limit's mark.")
    round_at = models.DateTimeField(null=True, blank=True)
    round_seconds = models.FloatField(null=True, blank=True)
    round_requests = models.PositiveIntegerField(null=True, blank=True)

    def __str__(self) -> str:
        return self.url


class JenkinsNode(models.Model):
    """One node as the controller last showed it."""

    name = models.CharField(max_length=60, unique=True)
    online = models.BooleanField(default=False)
    connected = models.BooleanField(default=False, help_text="Whether its agent is there, marked offline or not.")
    temporarily_offline = models.BooleanField(default=False)
    offline_reason = models.TextField(blank=True)
    held_for = models.CharField(max_length=60, blank=True, help_text="Key for which we marked it offline.")
    busy_with = models.CharField(max_length=200, blank=True, help_text="What its executors do.")
    seen_at = models.DateTimeField()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class JenkinsJob(models.Model):
    """One job that we trigger, and whether it still is as we defined it."""

    name = models.CharField(max_length=100, unique=True)
    problem = models.TextField(blank=True, help_text="Why nothing is triggered there.")
    checked_at = models.DateTimeField(null=True, blank=True)
    edited_at = models.DateTimeField(
        null=True, blank=True, help_text="When a build of it last came with another script than ours."
    )

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def trouble(self) -> str:
        """Why nothing is triggered there, for people; empty if all is well."""
        if self.problem or self.edited_at is None:
            return self.problem
        return f"the script of {self.name} was edited by hand: run manage.py jenkins_apply"
