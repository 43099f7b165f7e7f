"""What the outside world can see: the mail in the sink and the page of the series."""

import email
import email.policy
import html
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from email.utils import getaddresses

from demo.checks.facts import Check, check
from demo.outcomes import Outcome
from demo.processes import ADDRESS
from demo.sink import Stored
from server.detection.models import Finding
from server.reports.models import Delivery, Report
from server.sources.models import Series

Fetch = Callable[[str], tuple[int, str]]
_SECONDS = 20


def fetch(url: str) -> tuple[int, str]:
    """Status and text of a page; 0 and the reason where no answer came."""
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310 (our own http address)
            return int(answer.status), answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, str(error)
    except OSError as error:
        return 0, str(error)


def mail_checks(series: Series, outcome: Outcome, mails: Sequence[Stored]) -> list[Check]:
    replies = replies_to(series.root_message_id, mails)
    if not outcome.mailed:
        return [check("no mail, a draft waits", _draft_faults(series, replies), "for a person")]
    again = f", handed over {replies[0].arrivals} times" if replies and replies[0].arrivals > 1 else ""
    return [check("one mail in the thread", _mail_faults(series, outcome, replies), f"to {ADDRESS}{again}")]


def replies_to(root_message_id: str, mails: Sequence[Stored]) -> list[Stored]:
    return [mail for mail in mails if mail.in_reply_to == f"<{root_message_id}>"]


def _draft_faults(series: Series, replies: Sequence[Stored]) -> Iterator[str]:
    if replies:
        yield f"{len(replies)} mails answer the series"
    report = Report.objects.filter(finding__series=series).first()
    if report is None or report.state != Report.State.DRAFT:
        yield f"the report is {report.state if report else 'missing'} instead of a draft"


def _mail_faults(series: Series, outcome: Outcome, replies: Sequence[Stored]) -> Iterator[str]:
    if len(replies) != 1:
        yield f"{len(replies)} mails answer the series instead of one"
        return
    mail = replies[0]
    delivery = Delivery.objects.filter(report__finding__series=series).first()
    if delivery is None or mail.message_id != f"<{delivery.message_id}>":
        yield f"the mail {mail.message_id} is not the one in the outbox"
    elif delivery.state != Delivery.State.SENT:
        yield f"the outbox says that it is {delivery.state}"
    parsed = email.message_from_string(mail.text, policy=email.policy.default)
    readers = {address.lower() for _name, address in getaddresses(parsed.get_all("To", []))}
    if ADDRESS not in readers:
        yield f"it is not addressed to {ADDRESS}"
    body = parsed.get_content().lower()
    if "not evidence" not in body:
        yield "it does not say that virtual machines are no evidence"
    for uarch in outcome.verdicts:
        if uarch not in body:
            yield f"it does not name {uarch}"


def page_checks(series: Series, outcome: Outcome, url: str, fetch_page: Fetch = fetch) -> list[Check]:
    address = f"{url}/series/{series.pk}/"
    finding = Finding.objects.filter(series=series).first()
    headline = finding.headline if finding else ""
    return [check("page of the series", _page_faults(address, headline, outcome, fetch_page), address)]


def _page_faults(address: str, headline: str, outcome: Outcome, fetch_page: Fetch) -> Iterator[str]:
    status, text = fetch_page(address)
    if status != 200:  # noqa: PLR2004 (HTTP's own number)
        yield f"{address} answers {status}: {text[:200]}"
        return
    shown = html.unescape(text)
    for word in sorted({*outcome.verdicts, *outcome.verdicts.values(), "not evidence", headline}):
        if word not in shown:
            yield f"{address} does not show “{word}”"
