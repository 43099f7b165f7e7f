"""What changed: git trees with their revisions, list archives with their messages, and series made of them."""

from server.sources.models.mail import Epoch, MailingList, Message, Thread, ThreadMember
from server.sources.models.policy import MeasureRule, TrustedSender
from server.sources.models.series import Patch, Series, SeriesState
from server.sources.models.trees import Branch, HeadMove, Revision, Tag, Tree, WantedRevision

__all__ = [
    "Branch",
    "Epoch",
    "HeadMove",
    "MailingList",
    "MeasureRule",
    "Message",
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
