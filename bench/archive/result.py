"""What stands in the database of this process, without row ids and times of clocks: one JSON object per line.

python -m bench.archive.result BEFORE: times from BEFORE on (ISO 8601) are those of clocks, not of mails.
"""

import hashlib
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime

import django


def rows(before: datetime) -> Iterator[dict[str, object]]:
    """Every message, thread and series, in an order that does not depend on when they were stored."""
    # Nothing of ours can be imported before Django is set up.
    from server.sources.models import Message, Series  # noqa: PLC0415
    from server.sources.series.requests import all_series_json  # noqa: PLC0415

    threads: dict[int | None, list[str]] = defaultdict(list)
    for message in Message.objects.order_by("message_id", "blob").iterator(200):
        threads[message.thread_id].append(f"{message.message_id} {message.blob}")
        yield {
            "message": message.message_id,
            "blob": message.blob,
            "raw": hashlib.sha256(bytes(message.raw)).hexdigest() if message.raw else "",
            "kind": message.kind,
            "reason": message.reason,
            "subject": message.subject,
            "sender": message.sender_address,
            "received": message.received_at.isoformat() if message.received_at < before else "by the clock",
        }
    for members in sorted(threads.values()):
        yield {"thread": members}
    for series in Series.objects.order_by("root_message_id", "version", "submitted_at").iterator(200):
        [told] = all_series_json(Series.objects.filter(pk=series.pk))
        yield {"series": _timeless(told, before)}


def _timeless(value: object, before: datetime) -> object:
    """Without times of clocks, and without the steps that led there: these tell when someone looked."""
    if isinstance(value, dict):
        return {key: _timeless(item, before) for key, item in value.items() if key != "transitions"}
    if isinstance(value, list):
        return [_timeless(item, before) for item in value]
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return value
        return value if moment.tzinfo and moment < before else "by the clock"
    return value


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "server.settings")
    django.setup()
    for row in rows(datetime.fromisoformat(sys.argv[1])):
        print(json.dumps(row, sort_keys=True))


if __name__ == "__main__":
    main()
