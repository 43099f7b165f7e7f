"""What settings promise together: a site behind TLS has nothing left that Django's own checks would warn of."""

import os
import subprocess
import sys

import pytest
from django.conf import settings
from django.db import connection

from scripts.run_tests import ROOT

_KEY = "Jm0vQz8sKd3wXe6rTb9yUh2nPc5gLf7aWi4oRk1zNx8vBq6tYs"  # for no site


def manage(*words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TIDEMARK_SECRET_KEY": _KEY, **settings}
    command = [sys.executable, "manage.py", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("hsts", ["", "host", "subdomains", "preload"])
def test_site_behind_tls_passes_the_checks_for_deployment(hsts: str) -> None:
    done = manage("check", "--deploy", "--fail-level", "WARNING", TIDEMARK_BEHIND_TLS="1", TIDEMARK_HSTS=hsts)
    assert done.returncode == 0, done.stderr
    assert "no issues (0 silenced)" in done.stdout or hsts in {"", "host", "subdomains"}


def test_setting_that_makes_no_sense_ends_the_process_with_its_name() -> None:
    for name, value in (
        ("TIDEMARK_HSTS", "all"),
        ("TIDEMARK_MIRROR_URL", "https://robot:s3cret@git.example.org/m.git"),
    ):
        done = manage("check", **{name: value})
        assert done.returncode != 0
        assert name in done.stderr
        assert "s3cret" not in done.stderr.rpartition("ImproperlyConfigured")[2]


@pytest.mark.django_db
def test_database_is_told_which_program_asks() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW application_name")
        assert cursor.fetchone() == (f"tidemark {settings.PROCESS}",)
