"""What changed: git trees with their revisions, list archives with their messages, and series made of them."""

from server.sources.models.patches import MeasureRule, Patch, Series, SeriesState, TrustedSender
from server.sources.models.watched import (
    Branch,
    ChangedPath,
    Epoch,
    HeadMove,
    MailingList,
    Message,
    Open,
    Revision,
    Tag,
    Thread,
    ThreadMember,
    Tree,
    WantedRevision,
)

__all__ = [
    "Branch",
    "ChangedPath",
    "Epoch",
    "HeadMove",
    "MailingList",
    "MeasureRule",
    "Message",
    "Open",
    "Patch",
    "Revision",
    "Series",
    "SeriesState",
    "Tag",
    "Thread",
    "ThreadMember",
    "Tree",
    "TrustedSender",
    "WantedRevision",
]
