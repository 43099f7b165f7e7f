"""Answers to our mails by the thousand, honest and hostile: who is obeyed, and whether each leaves its reason.

python -m bench.scratch_database bench.mail.fuzz_commands [COUNT [SEED]]

The mails are those of tests/fuzz/replies.py. Nobody may be obeyed whose key did not sign just that, to just that mail
of ours, and each such line once; every mail that answers ours and holds a command must leave a reason.
"""

import sys
import time

from django.conf import settings

from bench.table import table
from server.reports.models import Delivery, MailCommand, OptOut, Report
from tests.fuzz.replies import OURS, Attack

_COUNT = 10_000
_THREADS = 200


def main(count: str = str(_COUNT), seed: str = "1") -> None:
    settings.MAIL_FROM = f"Tidemark <{OURS}>"
    began = time.monotonic()
    outcome = Attack(int(seed), threads=_THREADS).run(int(count))
    seconds = time.monotonic() - began
    print(table(["mails", "number"], [[kind, str(number)] for kind, number in outcome.kinds.most_common()]))
    print(table(["reason", "commands"], [[code, str(number)] for code, number in outcome.codes.most_common()]))
    answers = Report.objects.filter(kind=Report.Kind.ANSWER).count()
    print(f"{outcome.mails} mails in {seconds:.0f} s, seed {seed}: {MailCommand.objects.count()} commands stored")
    print(f"{answers} answers, {OptOut.objects.count()} addresses opted out, {Delivery.objects.count()} mails of ours")
    for what, number in outcome.troubles.most_common():
        print(f"{number} x {what}")
    print("all is well" if not outcome.troubles else "WRONG")
    sys.exit(1 if outcome.troubles else 0)
