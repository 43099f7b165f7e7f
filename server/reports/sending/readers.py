"""Who of a report's recipients is written to at this moment: nobody who asked for no mail, or whose address rests."""

from collections.abc import Container, Iterable, Sequence
from datetime import datetime
from email.utils import parseaddr

from django.conf import settings

from server.core.errors import DomainError
from server.reports.models import OptOut, Report, RestingAddress


def bare(recipient: str) -> str:
    """The address of `Name <address>`, or of an address alone, in lower case."""
    return (parseaddr(recipient)[1] or recipient).lower()


def opt_outs(addresses: Iterable[str]) -> dict[str, datetime]:
    """Those of them that get no mail, in lower case, and since when: who asked for none, and what rests."""
    wanted = {bare(address) for address in addresses}
    asked = OptOut.objects.filter(address__in=wanted)
    resting = RestingAddress.objects.filter(address__in=wanted, lifted_at=None)
    return dict(resting.values_list("address", "since")) | dict(asked.values_list("address", "created_at"))


def readers(report: Report, out: Container[str]) -> tuple[list[str], list[str]]:
    """To and Cc of a report without `out`."""
    to = [address for address in report.to if bare(address) not in out]
    cc = [address for address in report.cc if bare(address) not in out]
    return (to, cc) if to else (cc[:1], cc[1:])


def refuse_readers(to: Sequence[str], cc: Sequence[str]) -> None:
    if len(to) + len(cc) > settings.MAIL_MAX_RECIPIENTS:
        raise DomainError("too-many-recipients", f"{len(to) + len(cc)} recipients are too many")
    if not to:
        raise DomainError("nobody-to-tell", "every recipient has opted out, or does not take mails")
