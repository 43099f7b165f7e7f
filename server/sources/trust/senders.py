"""Which senders of a series are trusted, and by what: the site's own list, or what they maintain."""

from collections.abc import Collection, Iterable
from functools import cached_property

import structlog
from django.db.models import Q, Sum
from django.db.models.functions import Lower

from server.core import clock
from server.core.errors import DomainError
from server.sources.mirror import mirror
from server.sources.models import Branch, Series, Tree, TrustedSender
from server.sources.trust.maintainers import Section, maintainers_at, unmaintained

# Each is compared with all patterns of all sections of a person, which may be a hundred; a mail names 100,000 paths.
_MOST_PATHS = 2000
log = structlog.get_logger(__name__)


def trusted_addresses(addresses: Iterable[str]) -> set[str]:
    """Those of `addresses` (lower case) that a person has put on the list of trusted senders, unless that is over."""
    lasting = Q(expires_at=None) | Q(expires_at__gt=clock.now())
    rows = TrustedSender.objects.annotate(lower=Lower("address")).filter(lasting, lower__in=set(addresses))
    return set(rows.values_list("lower", flat=True))


def tree_of(series: Series, paths: Collection[str]) -> Tree | None:
    """The tree whose MAINTAINERS speaks about a series: its list's, else the one that takes most of its paths."""
    if series.mailing_list.tree is not None:
        return series.mailing_list.tree

    def taken(tree: Tree) -> int:
        return sum(path.startswith(tuple(tree.paths)) for path in paths)

    trees = Tree.objects.filter(enabled=True).exclude(paths=[]).order_by("-priority", "name")
    best = max(trees, key=taken, default=None)
    return best if best is not None and taken(best) else None


class Maintainers:
    """What MAINTAINERS says about the paths that a series changes; read when it is first asked for."""

    def __init__(self, series: Series) -> None:
        self._series = series
        self._is_large = (series.patches.aggregate(n=Sum("files"))["n"] or 0) > _MOST_PATHS
        patches = [] if self._is_large else list(series.patches.values_list("paths", flat=True))
        self.paths = sorted({path for paths in patches for path in paths})
        # A patch whose paths are not known may change anything.
        self._known = bool(patches) and all(patches)

    @cached_property
    def _sections(self) -> tuple[Section, ...]:
        tree = tree_of(self._series, self.paths)
        branches = Branch.objects.filter(tree=tree, head__isnull=False, deleted_at=None).select_related("head")
        newest = branches.order_by("-head_at", "pk").first() if tree else None
        return maintainers_at(mirror(), newest.head.sha) if newest and newest.head else ()

    def doubt(self, person: str) -> str:
        """Empty if `person` maintains every path of the series, else what is missing."""
        if self._is_large or len(self.paths) > _MOST_PATHS:
            return f"it changes more than {_MOST_PATHS} files, whoever maintains them"
        if not self._known:
            return "what it changes is not known"
        try:
            other = unmaintained(self._sections, person, self.paths)
        except (DomainError, OSError) as error:
            log.warning("maintainers_not_read", series=self._series.pk, error=str(error))
            return "MAINTAINERS cannot be read"
        return f"no maintainer of {other}" if other else ""
