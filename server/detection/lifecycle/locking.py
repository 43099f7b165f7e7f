"""Finding a finding, and holding it."""

from server.core.errors import DomainError
from server.detection.models import Finding


def held(finding_id: int) -> Finding:
    """The finding as it is now, held to the end of the transaction. DomainError `finding-unknown` if there is none."""
    rows = Finding.objects.select_for_update(of=("self",), no_key=True)
    finding = rows.select_related("series", "trial", "branch__tree").filter(pk=finding_id).first()
    if finding is None:
        raise DomainError("finding-unknown", f"there is no finding {finding_id}")
    return finding
