"""Addresses as strangers may see them: nothing that opens what they name."""

import pytest
from django.core.exceptions import ImproperlyConfigured, ValidationError

from server.core.addresses import check_address, configured_address, without_credentials

OPENING = [
    "https://robot:s3cret@git.example.org/mm.git",
    "https://s3cret@git.example.org/mm.git",
    "https://robot:s3cr@et@git.example.org/mm.git",
    "https://git.example.org/mm.git?token=s3cret",
    "https://git.example.org/mm.git?a=b&private_token=s3cret",
    "https://git.example.org/mm.git#s3cret",
    "https://git.example.org?s3cret",
    "http://robot:s3?cret@git.example.org/mm.git?token=s3cret",
]


@pytest.mark.parametrize("url", OPENING)
def test_no_part_that_opens_something_is_shown(url: str) -> None:
    for text in (url, f"fatal: repository '{url}/' not found", f"{url}: HTTP 403", f"a {url}\nb {url}"):
        shown = without_credentials(text)
        assert "s3" not in shown
        assert "git.example.org" in shown


@pytest.mark.parametrize("url", OPENING)
def test_address_that_opens_something_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValidationError, match="TIDEMARK_GIT_CREDENTIALS") as refused:
        check_address(url)
    with pytest.raises(ImproperlyConfigured, match="TIDEMARK_MIRROR_URL") as ended:
        configured_address("TIDEMARK_MIRROR_URL", url)
    assert "s3" not in f"{refused.value}{ended.value}"


@pytest.mark.parametrize(
    "url",
    ["", "/srv/mirror.git", "https://git.example.org:8443/~ada/mm.git", "file:///srv/a@b/c.git", "https://x.org/a@b/"],
)
def test_plain_addresses_pass_as_they_are(url: str) -> None:
    check_address(url)
    assert configured_address("TIDEMARK_MIRROR_URL", url) == without_credentials(url) == url
