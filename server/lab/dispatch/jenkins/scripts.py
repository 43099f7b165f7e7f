"""Whether a build runs the script that we defined: its first act is to say which one it is.

The dispatcher's user may not read a job's configuration, and a job that was edited by hand shows nothing of it. Who has
his script tell our hash is not found out so; `jenkins_apply --check`, with an admin's account, finds that as well.
"""

import structlog

from server.core.errors import DomainError
from server.lab.dispatch.jenkins import jobs
from server.lab.dispatch.jenkins.definitions import wanted
from server.lab.models import Attempt, Fault, JenkinsRun
from server.lab.moving import UNCLAIMED

log = structlog.get_logger(__name__)


def check_script(attempt: Attempt, script: str) -> None:
    """Raise `job-edited` unless the attempt's build runs our script; what was found is noted first.

    Not called in a transaction that its error would undo. A key that its machine took in was brought by a build that
    passed; what no controller was asked to start has no script.
    """
    if attempt.state not in UNCLAIMED or attempt.arrived_at is not None:
        return
    run = JenkinsRun.objects.filter(attempt=attempt, posts__gt=0).first()
    if run is None:
        return
    definition = wanted().jobs.get(run.job)
    if definition is not None and script == definition.script:
        jobs.note_ours(run.job)
        return
    JenkinsRun.objects.filter(pk=run.pk).update(fault=Fault.JOB)
    jobs.note_edited(run.job)
    told = f"script {script[:12]}" if script else "a script that does not say which it is"
    log.warning("job_edited", key=attempt.key, trace=attempt.trace, job=run.job, script=script)
    raise DomainError("job-edited", f"{run.job} runs {told}, not the one that the service defined; it gets no work")
