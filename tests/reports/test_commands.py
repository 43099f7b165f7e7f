"""Commands by mail: who is obeyed, what is done, what is answered, and that nothing goes round in circles."""

import re
from datetime import timedelta
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Permission, User
from pytest_django.fixtures import Settings

from server.core import clock
from server.core.models import Transition
from server.detection.findings.checks import Name, checks_named
from server.detection.findings.result import remake
from server.detection.models import Finding, Verdict
from server.detection.on_trial_over import answer_trial
from server.lab.models import Session, Trial
from server.reports.commands.inbox import answer_trial_asked, obey_mail, read_new_mails, sweep_commands
from server.reports.commands.responses import MOST_A_DAY
from server.reports.models import CommandState, Delivery, MailCommand, OptOut, Report
from server.reports.outbox import send_delivery
from server.reports.sending.headers import build_mail
from server.sources.messages.storage import store_message
from server.sources.models import MailingList, Message, TrustedSender
from tests.builders import build_comparison, build_list, build_machine, build_trial_session
from tests.detection.lifecycle.findings import write_down
from tests.fuzz.replies import COVERED, LOOKUP, OURS, Told, letter, tell
from tests.reports.conftest import Server
from tests.reports.tellable import last, news
from tests.reports.tellable import told as told_of
from tests.reports.test_branches import regressed
from tests.sources.signing import Names, sign, silent

pytestmark = pytest.mark.django_db
Sent = list[tuple[str, tuple[int | str, ...]]]
AUTHOR = "author@example.org"


@pytest.fixture(autouse=True)
def open_site(settings: Settings) -> None:
    settings.MAIL_ENABLED = True
    settings.MAIL_FROM = f"Tidemark <{OURS}>"
    settings.MAIL_SINK = ""


@pytest.fixture
def told() -> Told:
    return tell(AUTHOR, build_list())


def signed(raw: bytes, domain: str = "example.org", leaving: tuple[str, ...] = ()) -> bytes:
    there = [name for name in COVERED if name not in leaving and f"\n{name}:".encode() in b"\n" + raw.lower()]
    return sign(raw, domain, headers=there)


def arrive(raw: bytes, mailing_list: MailingList | None = None) -> list[MailCommand]:
    """The commands of the mail as they stand once the workers have had their turn."""
    message = store_message(mailing_list=mailing_list or build_list(), raw=raw)
    read_new_mails()
    obey_mail(message_id=message.pk, lookup=LOOKUP)
    return list(MailCommand.objects.filter(message=message).order_by("line"))


def say(told: Told, *lines: str, sender: str = AUTHOR, name: str = "r1@example.org", **more: Any) -> list[MailCommand]:
    text = "".join(f"#tidemark {line}\n" for line in lines)
    return arrive(signed(letter(told, text, sender=sender, name=name, **more), sender.partition("@")[2]))


def finding_of(told: Told) -> Finding:
    found = Finding.objects.get(reports=told.delivery.report)
    assert found.series is not None
    return found


def outcome(rows: list[MailCommand]) -> list[tuple[str, str]]:
    return [(row.state, row.reason_code) for row in rows]


def test_retest_of_the_author_starts_a_trial_with_his_name(told: Told) -> None:
    [row] = say(told, "retest")
    assert outcome([row]) == [("under-way", "measured-for-it")]
    assert row.role == MailCommand.Role.AUTHOR
    trial = Trial.objects.get(purpose=Trial.Purpose.RETEST)
    assert (row.trial, trial.series) == (trial, finding_of(told).series)
    assert trial.benchmarks == []
    step = Transition.objects.get(subject="finding", reason_code="asked-again")
    assert step.actor == f"{AUTHOR} (mail r1@example.org)"
    assert not Report.objects.filter(kind=Report.Kind.ANSWER).exists()


def test_test_narrows_machines_and_benchmarks(told: Told) -> None:
    [row] = say(told, "test on Haswell bench mm-basic/fault-4k")
    assert row.state == CommandState.UNDER_WAY
    trial = Trial.objects.get(purpose=Trial.Purpose.RETEST)
    assert [machine.name for machine in trial.machines.all()] == ["box-haswell"]
    assert trial.benchmarks == ["mm-basic/fault-4k"]


def test_accept_is_a_line_of_the_ledger_with_who_and_why(told: Told) -> None:
    assert outcome(say(told, "accept: the bulk path pays for it")) == [("done", "obeyed")]
    finding = finding_of(told)
    assert finding.state == Finding.State.ACCEPTED
    line = finding.acceptances.get()
    assert (line.reason, line.person) == ("the bulk path pays for it", f"{AUTHOR} (mail r1@example.org)")


def test_invalid_withdraws(told: Told) -> None:
    assert outcome(say(told, "invalid: the firmware was updated meanwhile")) == [("done", "obeyed")]
    finding = finding_of(told)
    assert (finding.state, finding.reason) == ("invalid", "wrong: the firmware was updated meanwhile")


def test_dup_stands_down_for_the_finding_of_another_mail(told: Told) -> None:
    other = tell("bob@example.org", build_list())
    assert outcome(say(told, f"dup: <{other.delivery.message_id}>")) == [("done", "obeyed")]
    finding = finding_of(told)
    assert (finding.state, finding.reason_code) == (Finding.State.SUPERSEDED, "same-change")
    assert finding_of(other).state == Finding.State.REPORTED


def test_fix_of_a_series_is_refused_with_what_helps(told: Told) -> None:
    [row] = say(told, "fix: mm: Clear pages once")
    assert outcome([row]) == [("refused", "not-done")]
    assert row.answer is not None
    assert "next version is compared with it" in " ".join(row.answer.body.split())


def test_stop_is_for_whoever_got_the_mail_and_is_not_answered(told: Told) -> None:
    assert outcome(say(told, "stop", sender="reader@evil.example")) == [("done", "obeyed")]
    assert [row.address for row in OptOut.objects.all()] == ["reader@evil.example"]
    assert not Report.objects.filter(kind=Report.Kind.ANSWER).exists()


def test_nobody_is_silenced_by_somebody_else(told: Told) -> None:
    raw = letter(told, "#tidemark stop\n", sender="reader@evil.example", name="x@y.z")
    assert outcome(arrive(raw)) == [("ignored", "not-proved")]
    assert outcome(say(told, "stop", sender="eve@evil.example", name="y@y.z")) == [("ignored", "not-allowed")]
    assert not OptOut.objects.exists()


def test_a_list_that_stands_there_as_the_sender_never_asks_for_no_mail(told: Told) -> None:
    address = Report.objects.get(kind=Report.Kind.SERIES).cc[0]
    domain = address.rpartition("@")[2]
    MailingList.objects.update(address=address)
    rows = arrive(signed(letter(told, "#tidemark stop\n", sender=address, name="munged@y.z"), domain))
    assert outcome(rows) == [("ignored", "not-allowed")]
    assert not OptOut.objects.exists()


# --- who may -------------------------------------------------------------------------


def test_a_reader_may_do_nothing_but_stop(told: Told) -> None:
    assert outcome(say(told, "retest", "stop", sender="reader@evil.example")) == [
        ("ignored", "not-allowed"),
        ("done", "obeyed"),
    ]


def test_no_name_server_is_asked_for_a_stranger(told: Told) -> None:
    names = Names("evil.example")
    raw = signed(letter(told, "#tidemark retest\n", sender="eve@evil.example", name="e@e.e"), "evil.example")
    message = store_message(mailing_list=build_list(), raw=raw)
    read_new_mails()
    obey_mail(message_id=message.pk, lookup=names)
    assert outcome(list(MailCommand.objects.all())) == [("ignored", "not-allowed")]
    assert names.asked == []


def test_trusted_senders_and_triagers_may(told: Told) -> None:
    TrustedSender.objects.create(address="tree@example.org")
    user = User.objects.create_user("tara", email="Tara@example.org")
    assert outcome(say(told, "retest", sender="tara@example.org", name="t0@e.e")) == [("ignored", "not-allowed")]
    user.user_permissions.add(Permission.objects.get(codename="change_finding"))
    [row] = say(told, "accept: a", sender="tara@example.org", name="t1@e.e")
    assert (row.state, row.role) == (CommandState.DONE, MailCommand.Role.TRIAGER)
    [row] = say(told, "accept: b", sender="tree@example.org", name="t2@e.e")
    assert (row.state, row.role) == (CommandState.DONE, MailCommand.Role.TRUSTED)


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda raw: raw.replace(b"retest\n", b"retest\n#tidemark invalid: added\n"), "not-proved"),
        (lambda raw: raw.partition(b"\nFrom: ")[2] and b"From: " + raw.partition(b"\nFrom: ")[2], "not-proved"),
        (lambda raw: raw.replace(b"Date: Sun, 29", b"Date: Sat, 28"), "not-proved"),
    ],
)
def test_what_is_changed_or_not_signed_is_not_obeyed(told: Told, spoil: Any, code: str) -> None:
    raw = spoil(signed(letter(told, "#tidemark retest\n", sender=AUTHOR, name="s@e.e")))
    assert {row.reason_code for row in arrive(raw)} == {code}
    assert not Trial.objects.filter(purpose=Trial.Purpose.RETEST).exists()


def test_a_signature_that_leaves_open_what_is_answered_is_not_enough(told: Told) -> None:
    other = tell("bob@example.org", build_list())
    raw = signed(letter(told, "#tidemark invalid: wrong\n", sender=AUTHOR, name="o@e.e"), leaving=("in-reply-to",))
    assert outcome(arrive(raw)) == [("ignored", "target-open")]
    moved = raw.replace(told.delivery.message_id.encode(), other.delivery.message_id.encode())
    assert outcome(arrive(moved)) == [("ignored", "not-allowed")]
    assert {finding_of(told).state, finding_of(other).state} == {Finding.State.REPORTED}


def test_references_that_are_signed_name_what_is_answered(told: Told) -> None:
    person = "person@example.org"
    names = [told.delivery.message_id, person]
    assert outcome(say(told, "retest", reply_to=person, references=names)) == [("under-way", "measured-for-it")]


def test_an_archive_of_the_site_proves_its_senders(told: Told) -> None:
    own = build_list("own", proof=MailingList.Proof.ARCHIVE)
    raw = letter(told, "#tidemark retest\n", sender=AUTHOR, name="a@e.e")
    assert outcome(arrive(raw, own)) == [("under-way", "measured-for-it")]


def test_silent_name_servers_are_asked_again_and_not_for_ever(told: Told, sent_tasks: Sent) -> None:
    raw = signed(letter(told, "#tidemark retest\n", sender=AUTHOR, name="d@e.e"))
    message = store_message(mailing_list=build_list(), raw=raw)
    read_new_mails()
    obey_mail(message_id=message.pk, lookup=silent)
    row = MailCommand.objects.get()
    assert row.state == CommandState.WAITING
    with time_machine.travel(clock.now() + timedelta(days=4)):
        obey_mail(message_id=message.pk, lookup=silent)
    row.refresh_from_db()
    assert outcome([row]) == [("ignored", "not-proved")]


# --- once ----------------------------------------------------------------------------


def test_copies_by_other_lists_are_obeyed_once(told: Told) -> None:
    raw = signed(letter(told, "#tidemark retest\n", sender=AUTHOR, name="c@e.e"))
    assert outcome(arrive(raw)) == [("under-way", "measured-for-it")]
    assert outcome(arrive(b"List-Id: <x.example.org>\n" + raw, build_list("other"))) == [("ignored", "doubled")]


def test_a_broken_copy_that_comes_first_does_not_hide_the_true_one(told: Told) -> None:
    raw = signed(letter(told, "#tidemark retest\n", sender=AUTHOR, name="c@e.e"))
    assert outcome(arrive(raw + b"____\nlist footer\n", build_list("other"))) == [("ignored", "not-proved")]
    assert outcome(arrive(raw)) == [("under-way", "measured-for-it")]


def test_a_mail_is_not_obeyed_again_under_another_name(told: Told) -> None:
    text = "#tidemark accept: known\n"
    raw = signed(letter(told, text, sender=AUTHOR, name="n1@e.e"), leaving=("message-id",))
    assert outcome(arrive(raw)) == [("done", "obeyed")]
    assert outcome(arrive(raw.replace(b"<n1@e.e>", b"<n2@e.e>"))) == [("ignored", "doubled")]


def test_the_same_command_twice_in_a_mail_is_one(told: Told) -> None:
    assert outcome(say(told, "retest", "Retest", "accept: x")) == [
        ("under-way", "measured-for-it"),
        ("ignored", "doubled"),
        ("done", "obeyed"),
    ]


def test_all_of_it_is_harmless_twice(told: Told) -> None:
    rows = say(told, "retest", "reboot")
    for _ in range(2):
        read_new_mails()
        obey_mail(message_id=rows[0].message_id, lookup=LOOKUP)
    assert MailCommand.objects.count() == 2
    assert Report.objects.filter(kind=Report.Kind.ANSWER).count() == 1


def test_the_sweep_finds_what_a_lost_message_left(
    told: Told, sent_tasks: Sent, django_capture_on_commit_callbacks: Any
) -> None:
    raw = signed(letter(told, "#tidemark retest\n", sender=AUTHOR, name="l@e.e"))
    message = store_message(mailing_list=build_list(), raw=raw)
    with django_capture_on_commit_callbacks(execute=True):
        sweep_commands()
    assert sent_tasks == [("reports.read_commands", ())]
    read_new_mails()
    sent_tasks.clear()
    with django_capture_on_commit_callbacks(execute=True):
        sweep_commands()
    assert sent_tasks == [("reports.obey", (message.pk,))]


# --- answers -------------------------------------------------------------------------


def test_an_error_is_answered_into_the_thread_to_its_sender_alone(told: Told, server: Server) -> None:
    [row] = say(told, "test on zen9")
    assert outcome([row]) == [("refused", "not-done")]
    assert row.answer is not None
    assert send_delivery(delivery_id=row.answer.delivery.pk)
    mail = message_from_bytes(server.accepted[0])
    assert server.recipients == [AUTHOR]
    assert (mail["To"], mail["Cc"]) == (AUTHOR, None)
    assert mail["In-Reply-To"] == "<r1@example.org>"
    assert mail["Auto-Submitted"] == "auto-replied"
    assert told.delivery.message_id in mail["References"]
    body = str(mail.get_payload()).replace("\r\n", "\n")
    assert "> #tidemark test on zen9\nNot done: there is no microarchitecture zen9 here; there are: haswell." in body
    assert max(map(len, body.splitlines())) <= 78
    assert finding_of(told).state == Finding.State.REPORTED


def test_what_came_of_a_retest_is_answered_once(told: Told) -> None:
    [row] = say(told, "retest")
    trial = row.trial
    assert trial is not None
    answer_trial_asked(trial_id=trial.pk)
    row.refresh_from_db()
    assert row.state == CommandState.UNDER_WAY
    build_comparison(build_trial_session(trial, state=Session.State.DONE), Verdict.UNCHANGED)
    Trial.objects.filter(pk=trial.pk).update(state=Trial.State.DONE)
    answer_trial(trial_id=trial.pk)
    for _ in range(2):
        answer_trial_asked(trial_id=trial.pk)
    row.refresh_from_db()
    assert outcome([row]) == [("done", "answered")]
    answer = Report.objects.get(kind=Report.Kind.ANSWER)
    assert row.answer == answer
    assert "does not say the same" in answer.body
    assert answer.to == [AUTHOR]


def test_who_asked_is_told_that_a_part_was_not_seen_again(told: Told) -> None:
    """It is taken back by then: what is left says the same."""
    finding = finding_of(told)
    assert finding.trial is not None
    lost = finding.trial.sessions.get().machine
    won = build_machine("box-zen5", "zen5")
    build_comparison(build_trial_session(finding.trial, won, state=Session.State.DONE), Verdict.IMPROVED)
    remake(finding)
    assert finding_of(told).kind == "split"
    [row] = say(told, "retest")
    assert row.trial is not None
    for machine, verdict in ((lost, Verdict.REGRESSED), (won, Verdict.UNCHANGED)):
        build_comparison(build_trial_session(row.trial, machine, state=Session.State.DONE), verdict)
    Trial.objects.filter(pk=row.trial.pk).update(state=Trial.State.DONE)
    answer_trial(trial_id=row.trial.pk)
    assert finding_of(told).kind == "regressed"
    answer_trial_asked(trial_id=row.trial.pk)
    assert "does not say the same" in Report.objects.get(kind=Report.Kind.ANSWER).body


def test_strangers_and_programs_are_never_answered(told: Told) -> None:
    say(told, "reboot", sender="eve@evil.example", name="s1@e.e")
    arrive(letter(told, "#tidemark reboot\n", sender=AUTHOR, name="s2@e.e"))
    for number, header in enumerate(("Auto-Submitted: auto-replied", "Precedence: bulk", "X-Tidemark: series/1")):
        rows = say(told, "reboot", name=f"p{number}@e.e", more=[header])
        assert {row.state for row in rows} == {CommandState.IGNORED}
    assert not Report.objects.filter(kind=Report.Kind.ANSWER).exists()


def test_one_sender_gets_few_answers_in_a_day(told: Told) -> None:
    for number in range(MOST_A_DAY + 3):
        say(told, f"reboot {number}", name=f"m{number}@e.e")
    assert Report.objects.filter(kind=Report.Kind.ANSWER).count() == MOST_A_DAY
    assert {row.reason_code for row in MailCommand.objects.all()} == {"not-understood"}


def test_who_wants_no_mail_gets_no_answer(told: Told) -> None:
    OptOut.objects.create(address=AUTHOR)
    say(told, "reboot")
    assert not Report.objects.filter(kind=Report.Kind.ANSWER).exists()


def test_two_services_that_trust_each_other_come_to_rest(told: Told) -> None:
    """Their marks are taken off on the way, and each is a trusted sender of the other."""
    TrustedSender.objects.create(address="tidemark@trusted.example")
    [row] = say(told, "reboot", sender="tidemark@trusted.example", name="first@trusted.example")
    assert row.answer is not None
    for number in range(3):
        answers = Report.objects.filter(kind=Report.Kind.ANSWER).count()
        ours = build_mail(Delivery.objects.latest("pk"), ["tidemark@trusted.example"], []).message().get_payload()
        text = str(ours)
        # The other one has the same words, and answers ours.
        rows = arrive(
            signed(
                letter(
                    told,
                    text,
                    sender="tidemark@trusted.example",
                    name=f"b{number}@trusted.example",
                    reply_to=row.answer.delivery.message_id,
                ),
                "trusted.example",
            )
        )
        assert {one.state for one in rows} <= {CommandState.IGNORED}
        assert Report.objects.filter(kind=Report.Kind.ANSWER).count() == answers == 1


def test_own_mails_that_come_back_are_left_alone(told: Told) -> None:
    rows = arrive(letter(told, "#tidemark retest\n", sender=OURS, name="z@perf.example.org"))
    assert outcome(rows) == [("ignored", "own-mail")]
    again = letter(told, "#tidemark retest\n", sender=AUTHOR, name=told.delivery.message_id)
    assert outcome(arrive(again)) == [("ignored", "own-mail")]


def test_two_sites_that_write_to_each_other_rest_after_one_answer(
    told: Told, server: Server, settings: Settings
) -> None:
    """The other one writes a command without a mark of a program; of our answer it takes no command, not even one."""
    [row] = say(told, "reboot")
    assert row.answer is not None
    assert send_delivery(delivery_id=row.answer.delivery.pk)
    # The other site knows its own mail by its name, and none of ours.
    Delivery.objects.filter(pk=told.delivery.pk).update(message_id="r1@example.org")
    Delivery.objects.filter(pk=row.answer.delivery.pk).update(message_id="unknown@example.org")
    settings.MAIL_FROM = f"Other <{AUTHOR}>"
    TrustedSender.objects.create(address=OURS)
    answer = server.accepted[0].replace(b"\r\n", b"\n") + b"#tidemark reboot\n"
    assert outcome(arrive(signed(answer, "perf.example.org"))) == [("ignored", "own-mail")]
    # One that a server has renamed, and taken our mark from.
    bare = re.sub(rb"(?m)^X-Tidemark:.*\n", b"", answer).replace(b"Message-ID: <", b"Message-ID: <other.")
    assert outcome(arrive(signed(bare, "perf.example.org"))) == [("ignored", "by-robot")]
    assert Report.objects.filter(kind=Report.Kind.ANSWER).count() == 1


def test_commands_that_answer_nothing_of_ours_leave_nothing(told: Told) -> None:
    assert say(told, "retest", reply_to="somebody@example.org") == []
    assert not MailCommand.objects.exists()


def test_a_narrow_retest_speaks_of_its_cells_alone(told: Told) -> None:
    """A split on two machines, asked again on the one that lost, is no other verdict."""
    [row] = say(told, "test on haswell")
    assert row.trial is not None
    again = build_trial_session(row.trial, build_machine("box-haswell"), state=Session.State.DONE)
    build_comparison(again, Verdict.REGRESSED)
    Finding.objects.filter(pk=finding_of(told).pk).update(kind=Finding.Kind.SPLIT)
    Trial.objects.filter(pk=row.trial.pk).update(state=Trial.State.DONE)
    answer_trial(trial_id=row.trial.pk)
    told_again = checks_named(finding_of(told), Name.RETEST)
    assert [check["outcome"] for check in told_again] == ["passed"]


def test_retest_of_a_change_in_a_branch_measures_both_its_ends_and_takes_back_what_is_not_seen_again(
    tmp_path: Path, settings: Settings
) -> None:
    settings.BISECT_HOURS = 0
    finding = regressed(tmp_path)
    report = told_of(finding)
    ours = Told(report.delivery, "ada@example.org")
    [row] = say(ours, "retest", sender=ours.author, name="b1@example.org")
    assert (*outcome([row]), row.role) == (("under-way", "measured-for-it"), MailCommand.Role.AUTHOR)
    trial = row.trial
    assert trial is not None
    assert (trial.purpose, trial.series) == (Trial.Purpose.RETEST, None)
    assert (trial.base, trial.patched) == (finding.before, finding.after)
    assert [machine.name for machine in trial.machines.all()] == ["m1"]
    [joined] = say(ours, "retest", sender="mia@example.org", name="b2@example.org")
    assert (joined.role, joined.trial) == (MailCommand.Role.MAINTAINER, trial)
    assert outcome(say(ours, "retest", sender="kim@evil.example", name="b3@example.org")) == [
        ("ignored", "not-allowed")
    ]
    write_down(trial, {trial.machines.get(): {"fork": "unchanged"}})
    trial.advance(Trial.State.DONE)
    assert answer_trial(trial_id=trial.pk)
    answer_trial_asked(trial_id=trial.pk)
    answers = Report.objects.filter(kind=Report.Kind.ANSWER)
    assert sorted(answer.to[0] for answer in answers) == ["ada@example.org", "mia@example.org"]
    assert all("does not say the same" in answer.body for answer in answers)
    news(finding)
    assert finding.state == Finding.State.INVALID
    retraction = last(Report.Kind.RETRACTION)
    assert (retraction.answers, readers(retraction)) == (report, readers(report))


def readers(report: Report) -> tuple[list[str], list[str]]:
    return report.to, report.cc


def test_mails_before_the_first_of_ours_are_not_read(django_assert_max_num_queries: Any) -> None:
    for number in range(3):
        Message.objects.create(mailing_list=build_list(), message_id=f"old{number}@e.e", blob=str(number), kind="other")
    assert not read_new_mails()
    with django_assert_max_num_queries(12):
        read_new_mails()
