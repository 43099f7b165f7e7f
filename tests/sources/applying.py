"""Series on their way through `apply_series`, for the tests of its parts."""

from server.sources.applying.application import apply_series
from server.sources.models import MailingList, Series
from tests.sources.posting import Upstream, deliver, git


def store(mailing_list: MailingList, mails: list[bytes]) -> Series:
    """The series that these mails became last."""
    deliver(mailing_list, *mails)
    return Series.objects.order_by("-pk")[0]


def applied(mailing_list: MailingList, mails: list[bytes]) -> Series:
    series = store(mailing_list, mails)
    assert series.state == Series.State.READY, series.reason
    apply_series(series=series)
    series.refresh_from_db()
    return series


def commits_of(series: Series) -> list[str]:
    return [p.revision.sha for p in series.patches.all() if p.revision]


def trees_of(series: Series) -> list[str]:
    return [p.revision.tree_sha for p in series.patches.all() if p.revision]


def base_of(series: Series) -> str:
    assert series.base is not None, series.reason
    return series.base.sha


def with_trailer(mails: list[bytes], *lines: str) -> list[bytes]:
    """The same mails, at the end of the first of which stand `lines`, such as a base-commit."""
    return [mails[0].rstrip(b"\n") + b"\n\n" + "\n".join(lines).encode() + b"\n", *mails[1:]]


def full_am(upstream: Upstream, base: str, mails: list[bytes]) -> list[str]:
    """Trees that `git am -3` makes in a full checkout of `base`."""
    upstream.git("checkout", "-q", "--detach", base)
    for number, raw in enumerate(mails):
        file = upstream.path.parent / f"am-{number}"
        file.write_bytes(raw)
        git(upstream.path, "am", "-q", "-3", "--no-scissors", str(file))
    trees = upstream.git("log", "--reverse", "--format=%T", f"{base}..HEAD").split()
    upstream.git("checkout", "-q", "master")
    return trees
