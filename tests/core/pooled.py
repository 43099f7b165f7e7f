"""What the tests of a pooler let run behind it, in a process of its own: `python -m tests.core.pooled WHAT`."""

import json
import sys
import threading
from typing import Any

import django
from django.db import connection, transaction
from django.db.models import IntegerField


def contend() -> dict[str, Any]:
    """Six threads that take one lock in turn and commit step by step inside it."""
    from server.core.database import advisory_lock
    from server.core.models import ApiToken

    holders, told = [0], {"held": 0, "overlapped": 0, "refused": 0}
    begin = threading.Barrier(6)

    def work() -> None:
        begin.wait()
        for _ in range(15):
            with advisory_lock("contended") as free:
                if not free:
                    told["refused"] += 1
                    continue
                holders[0] += 1
                told["held"] += 1
                for _ in range(3):
                    with transaction.atomic():
                        ApiToken.objects.count()
                    told["overlapped"] += holders[0] > 1
                holders[0] -= 1
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with advisory_lock("contended") as free:
        return {**told, "free": free}


def read_and_store() -> dict[str, Any]:
    """Rows in pieces, while others are stored, and COPY into a table of the transaction."""
    from server.core.models import Transition

    common = {"trace": "", "subject": "test", "after": "x"}
    Transition.objects.bulk_create(Transition(subject_id=number, **common) for number in range(300))
    seen = 0
    for row in Transition.objects.iterator(chunk_size=50):
        seen += 1
        with transaction.atomic():
            Transition.objects.filter(pk=row.pk).update(after="y")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE incoming (number int) ON COMMIT DROP")
        with cursor.copy("COPY incoming FROM STDIN") as copy:
            copy.write_row((1,))
        cursor.execute("SELECT count(*) FROM incoming")
        copied = cursor.fetchone()
    return {"seen": seen, "copied": copied[0] if copied else 0, **_prepared()}


def _prepared() -> dict[str, int]:
    """One question made once, asked by many in turn, each in another transaction: on whichever server is free."""
    from server.core.models import Transition
    from server.core.rows.prepared import Given, Prepared

    question = Prepared(lambda: Transition.objects.filter(subject_id=Given("number", IntegerField())))
    answers = [0] * 40
    servers = set()

    def ask(first: int) -> None:
        for number in range(first, 40, 4):
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid(), (SELECT count(*) FROM pg_prepared_statements)")
                server, prepared = cursor.fetchone()
                servers.add(server)
                answers[number] = len(question.rows(number=number)) + prepared
        connection.close()

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"asked": sum(answers), "servers": min(len(servers), 2)}


def start() -> dict[str, Any]:
    from server.core.database import refuse_unknown_pooler

    refuse_unknown_pooler()
    return {"started": True}


if __name__ == "__main__":
    django.setup()
    chosen = {"contend": contend, "read-and-store": read_and_store, "start": start}[sys.argv[1]]
    sys.stdout.write(f"{json.dumps(chosen())}\n")
