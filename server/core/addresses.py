"""Addresses as strangers may see them."""

import re

# Up to the last @ before the path: a password may hold one itself.
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")


def without_credentials(text: str) -> str:
    """`text` with `user:password@` left out of every URL in it: an address, or an error that quotes one."""
    return _CREDENTIALS.sub("", text)
