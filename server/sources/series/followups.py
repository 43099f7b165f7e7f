"""Trailers that people gave in answers: an answer to a patch counts for it, one to the cover letter for all patches."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from server.sources.messages.facts import within
from server.sources.models import Message

# More than any real series has; a robot that answers a thousand times must not make every page slow. The patches of a
# series may be hundreds, each with these trailers: their characters are bounded as well.
_MOST = 500
_MOST_OF_PATCH, _MOST_OF_SERIES = 12 * 1024, 48 * 1024
# A way through a discussion ends here, as two mails may well answer each other.
_HIGHEST = 100


@dataclass(frozen=True)
class Answer:
    """`parents` are Message-IDs, nearest first."""

    parents: tuple[str, ...]
    trailers: tuple[str, ...]


def answers_in(thread: int) -> list[Answer]:
    """All answers of a thread that bring trailers, in the order in which they were sent."""
    rows = Message.objects.filter(thread=thread, kind=Message.Kind.OTHER).exclude(trailers=[])
    fields = ("pk", "sender_name", "sender_address", "in_reply_to", "references", "trailers")
    ordered = rows.order_by("sent_at", "message_id", "pk").only(*fields)
    return [
        Answer(tuple(dict.fromkeys([row.in_reply_to, *reversed(row.references)])), tuple(_own_trailers(row)))
        for row in ordered.iterator()
    ]


def _own_trailers(row: Message) -> Iterator[str]:
    """Nobody gives a tag in somebody else's name: address or name must be the sender's."""
    for trailer in row.trailers:
        what, _, person = trailer.lower().partition(":")
        name, bracket, address = person.rpartition("<")
        mine = address.strip("> ") == row.sender_address.lower() or name.strip('" ') == row.sender_name.lower()
        if mine or not bracket or not what.endswith("-by"):
            yield trailer


class Followups:
    """The answers of a thread by the mail that they answer."""

    def __init__(self, answers: Iterable[Answer], parents: Mapping[str, str], posted: frozenset[str]) -> None:
        """`posted` are the Message-IDs of patches and cover letters: an answer is to the nearest one of them.

        `parents` says what each mail answers, for those whose own headers do not reach so far.
        """
        self._by_mail: dict[str, dict[str, None]] = {}
        for answer in answers:
            mail = next((p for p in _upwards(answer, parents) if p in posted), None)
            if mail is not None:
                known = self._by_mail.setdefault(mail, {})
                # Those of a cover letter are gone through for each patch, and no patch gets more.
                if len(known) < _MOST:
                    known.update(dict.fromkeys(answer.trailers))

    def to(self, message_id: str) -> list[str]:
        """The trailers that answers to this mail brought, each once."""
        return list(self._by_mail.get(message_id, ()))

    def of_patch(self, message: Message, cover: Message | None) -> list[str]:
        """A patch's own trailers, then those of answers to it and to the cover letter."""
        answered = [*self.to(message.message_id), *(self.to(cover.message_id) if cover else ())]
        return within(list(dict.fromkeys([*message.trailers, *answered]))[:_MOST], _MOST_OF_PATCH)

    def of_series(self, patches: Iterable[list[str]], cover: Message | None) -> list[str]:
        """All trailers of the patches (as `of_patch` gives them) and of answers to the cover letter."""
        answered = self.to(cover.message_id) if cover else []
        return within(list(dict.fromkeys([*chain.from_iterable(patches), *answered]))[:_MOST], _MOST_OF_SERIES)


def _upwards(answer: Answer, parents: Mapping[str, str]) -> Iterator[str]:
    yield from answer.parents
    above = answer.parents[0]
    for _ in range(_HIGHEST):
        if not (above := parents.get(above, "")):
            return
        yield above
