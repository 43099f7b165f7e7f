"""Addresses of mails in their list's public archive."""

from urllib.parse import quote, urlsplit

from server.core.addresses import without_credentials


def archive_link(inbox_url: str, message_id: str) -> str:
    """Where the archive shows this mail, or nothing when the inbox has no address that a browser may open."""
    try:
        scheme = urlsplit(inbox_url).scheme
    except ValueError:
        return ""
    if scheme not in ("http", "https"):
        return ""
    return f"{without_credentials(inbox_url).rstrip('/')}/{quote(message_id, safe='@')}/"
