#!/usr/bin/env python3
"""Tidemark's command line: `manage.py help` lists every command."""

import os
import sys

from django.core.management import execute_from_command_line

from server.core.files import keep_from_others

if __name__ == "__main__":
    # What pages load may be handed out by a web server that runs under another account.
    if sys.argv[1:2] != ["collectstatic"]:
        keep_from_others()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "server.settings")
    execute_from_command_line(sys.argv)
