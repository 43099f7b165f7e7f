"""A worker of bench.mail.fuzz: spoiled mails stored in PostgreSQL and put into series, as an import does.

python -m bench.scratch_database bench.mail.fuzz_store SEED COUNT FOLDER
"""

from pathlib import Path

from bench.mail.fuzz_guard import Tally, save
from bench.mail.fuzz_random import mail_of, seeds
from server.sources.messages.storage import store_message
from server.sources.models import MailingList, Message, Patch, Series, Thread
from server.sources.series.formation import group_stale

_ROUND = 200
_POSTED = (Message.Kind.PATCH, Message.Kind.COVER)


def fuzz(seed: int, count: int, folder: Path) -> Tally:
    """Store the mails 0 to `count` of this seed; what raises is a crash, and so is what gets lost."""
    tally = Tally()
    threads = seeds()
    everything = [mail for thread in threads for mail in thread]
    target = MailingList.objects.create(name="fuzz")
    for number in range(count):
        raw = mail_of(threads, everything, seed, number)
        tally.mails += 1
        try:
            tally.kinds[_stored(target, raw)] += 1
            if number % _ROUND == _ROUND - 1:
                group_stale()
        except Exception as error:  # noqa: BLE001 (every one is a finding)
            tally.crashes += 1
            tally.troubles[f"{type(error).__name__}: {str(error)[:100]}"] += 1
            save(folder, f"store-{seed}-{number}", raw, repr(error))
    group_stale()
    _count_lost(tally, Thread.objects.filter(stale=True).count(), "threads still stale")
    _count_lost(tally, _unexplained(), "patches or covers that are in no series without a reason")
    tally.kinds["series"] = Series.objects.count()
    return tally


def _stored(target: MailingList, raw: bytes) -> str:
    message = Message.objects.get(pk=store_message(mailing_list=target, raw=raw).pk)
    assert bytes(message.raw) == raw, "the raw mail is not what was stored"
    assert message.reason or message.kind != Message.Kind.UNUSABLE, "unusable without a reason"
    return message.kind


def _unexplained() -> int:
    in_series = set(Patch.objects.values_list("message", flat=True)) | set(
        Series.objects.values_list("cover", flat=True)
    )
    bare = Message.objects.filter(kind__in=_POSTED, reason="").values_list("pk", flat=True)
    return len(set(bare) - in_series)


def _count_lost(tally: Tally, number: int, what: str) -> None:
    if number:
        tally.crashes += 1
        tally.troubles[f"{number} {what}"] += 1


def main(seed: str, count: str, folder: str) -> None:
    fuzz(int(seed), int(count), Path(folder)).write(Path(folder) / "store.json")
