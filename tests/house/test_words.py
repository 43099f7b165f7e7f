"""Nothing in the repository belongs to the machine or the network it was written on."""

import re

from tests.house.sources import name_of, text_files

# In pieces, so that this file does not name what it forbids.
HOSTS = ("pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "npmjs" + ".com", "deb.debian" + ".org")
PRIVATE_PATHS = re.compile(r"(?<![\w.*])/(?:home|Users|root|work)/[\w.]")


def test_no_file_names_a_path_of_somebody_s_machine() -> None:
    found = {
        f"{name_of(path)}: {match[0]}" for path, text in text_files() for match in [PRIVATE_PATHS.search(text)] if match
    }
    assert found == set()


def test_no_file_names_the_host_of_a_registry() -> None:
    assert {f"{name_of(path)}: {host}" for path, text in text_files() for host in HOSTS if host in text} == set()
