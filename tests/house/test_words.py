"""Nothing in the repository belongs to the machine or the network it was written on."""

import re

from tests.house.sources import name_of, python_files, text_files

# In pieces, so that this file does not name what it forbids.
HOSTS = ("pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "npmjs" + ".com", "deb.debian" + ".org")
PRIVATE_PATHS = re.compile(r"(?<![\w.*])/(?:home|Users|root|work)/[\w.]")


def test_no_file_names_a_path_of_somebody_s_machine() -> None:
    found = {
        f"{name_of(path)}: {match[0]}" for path, text in text_files() for match in [PRIVATE_PATHS.search(text)] if match
    }
    assert found == set()


READS_WHAT_OTHERS_WROTE = {
    "server/builds/blame.py: .reason == ",
    "server/lab/dispatch/jenkins/controller.py: reason.startswith(",
}
# Jenkins keeps no code for us: of its own words those are told apart that begin as ours do.
READ_BACK = re.compile(
    r"(?<!offline_)reason__(?!gt\b)\w+|\b(?:reason|detail|authenticity)\.(?:startswith|endswith|find|index|partition)\("
    r"|\bin \w+\.(?:reason|authenticity)\b|\.reason == "
)


def test_no_program_reads_a_sentence_back() -> None:
    found = {
        f"{name_of(path)}: {match[0]}"
        for path in python_files("server", "workers")
        for match in READ_BACK.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == READS_WHAT_OTHERS_WROTE


def test_no_file_names_the_host_of_a_registry() -> None:
    assert {f"{name_of(path)}: {host}" for path, text in text_files() for host in HOSTS if host in text} == set()
