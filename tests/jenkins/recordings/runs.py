"""Recordings of builds from trigger to end."""

from server.lab.dispatch.jenkins.answers import Canceled, QueueStage
from server.lab.dispatch.jenkins.values import Missing, Rejected
from tests.jenkins.recordings.calls import (
    Entry,
    NotOurs,
    at,
    build,
    cancel,
    does,
    fails,
    gives,
    item,
    node,
    trigger_fails,
    triggers,
)

JOB = "bench-zen3"
CONSOLE = NotOurs("logs are read piece by piece (progressiveText), so that none has to fit into memory")
ARTIFACT = NotOurs("agents hand in results at the service; nothing is archived in Jenkins")

RUNS: dict[str, list[Entry]] = {
    "trigger": [
        triggers(JOB, 3),
        triggers(JOB, 4),
        triggers(JOB, 4, folded=True),
        triggers(JOB, 5),
        trigger_fails(JOB, Rejected, status=500, maybe_done=True),
    ],
    "aborted": [
        cancel(9, Canceled.DONE),
        item(9, "w3", QueueStage.LEFT, canceled=True, number=None),
        cancel(424242, Canceled.UNKNOWN),
        triggers(JOB, 10),
        cancel(10, Canceled.STARTED),
        build(JOB, 9, ""),
        does(lambda client: client.stop(JOB, 9)),
        build(JOB, 9, "ABORTED", node="zen3-01", queue_id=10, seconds=2.164, run_id=""),
        CONSOLE,
        does(lambda client: client.stop(JOB, 9)),
    ],
    "agent-lost": [
        triggers(JOB, 11),
        build(JOB, 10, "FAILURE", run_id="lost-1", node="zen3-01", seconds=3.078),
        CONSOLE,
        node("zen3-01", offline=True, connected=False, temporarily_offline=False, reason="Connection was broken"),
        triggers(JOB, 12),
        item(12, "lost-1-retry", QueueStage.BUILDABLE, "is offline", stuck=True),
        node("zen3-01", offline=False, connected=True, reason=""),
        build(JOB, 11, "SUCCESS", run_id="lost-1-retry"),
    ],
    "failure": [triggers(JOB, 6), build(JOB, 6, "FAILURE", run_id="run-0005", queue_id=6), CONSOLE],
    "running": [
        build(JOB, 3, "", run_id="run-0001", started_at=at(1795171128138), seconds=0.0),
        gives(
            lambda client: client.log(JOB, 3),
            lambda piece: (
                (piece.next_start, piece.more) == (856, True)
                and piece.text.startswith("Started by user dispatcher\n")
                and "\x1b" not in piece.text
                and "\r" not in piece.text
            ),
        ),
        gives(
            lambda client: client.log(JOB, 3, 856),
            lambda piece: (piece.text, piece.next_start, piece.more) == ("step 7\nstep 8\n", 870, True),
        ),
        gives(
            lambda client: client.node(
                "zen3-01", tree="displayName,idle,offline,executors[idle,progress,currentExecutable[number,url]]"
            ),
            lambda value: [work.number for work in value.busy_with] == [3] and value.connected,
        ),
    ],
    "success": [
        build(JOB, 3, "SUCCESS", seconds=8.182, run_id="run-0001"),
        ARTIFACT,
        ARTIFACT,
        gives(
            lambda client: client.log(JOB, 3, 870),
            lambda piece: piece.text.endswith("Finished: SUCCESS\n") and piece.next_start == 924 and not piece.more,
        ),
        gives(
            lambda client: client.log(JOB, 3, 999999),
            lambda piece: (piece.text, piece.next_start, piece.more) == ("", 924, False),
        ),
        CONSOLE,
        build(
            JOB,
            3,
            "SUCCESS",
            seconds=8.182,
            run_id="run-0001",
            parameters={"RUN_ID": "run-0001", "COMMAND": "uname -m", "SECONDS_TO_RUN": "8", "KIND": "bench"},
        ),
    ],
    "job-missing-404": [
        trigger_fails("nosuch", Missing),
        fails(lambda client: client.job_parameters("nosuch", tree=""), Missing),
        fails(lambda client: client.build(JOB, 9999, tree=""), Missing),
        fails(lambda client: client.stop(JOB, 9999), Missing),
        fails(lambda client: client.queue_item(999999), Missing),
        fails(lambda client: client.log(JOB, 9999), Missing),
        NotOurs("a trigger is always a POST"),
        NotOurs("our jobs have a parameter and are triggered with it"),
    ],
}
