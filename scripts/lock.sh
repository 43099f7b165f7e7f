#!/usr/bin/env bash
# Writes requirements*.txt anew: every package pinned and hashed, for the oldest Python that is supported.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

compile() {
    .venv/bin/uv pip compile --quiet --upgrade --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
        --python-version 3.11 pyproject.toml "${@:2}" -o "$1"
}

compile requirements.txt
# pytest-cov asks for coverage[toml]: a pin without the extra binds it only as long as no newer coverage is out.
compile requirements-dev.txt --extra dev -c requirements.txt --no-strip-extras
compile requirements-embedded.txt --extra embedded -c requirements.txt
