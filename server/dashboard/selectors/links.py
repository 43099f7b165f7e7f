"""Addresses of mails in their list's public archive."""

from urllib.parse import quote, urlsplit


def archive_link(inbox_url: str, message_id: str) -> str:
    """Where the archive shows this mail, or nothing when the inbox has no address that a browser may open."""
    if urlsplit(inbox_url).scheme not in ("http", "https"):
        return ""
    return f"{inbox_url.rstrip('/')}/{quote(message_id, safe='@')}/"
