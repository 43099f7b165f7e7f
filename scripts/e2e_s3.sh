#!/bin/sh
# `make e2e-s3`: the tests of the store of artifacts on a real S3 server (versitygw), which Go builds here.
set -eu
cd "$(dirname "$0")/.."
VERSION=v1.8.0
BIN=$PWD/.cache/versitygw-$VERSION
test -x "$BIN/versitygw" || GOBIN=$BIN nice go install "github.com/versity/versitygw/cmd/versitygw@$VERSION"
S3_SERVER=$BIN/versitygw nice .venv/bin/python -m scripts.run_tests tests/builds/test_storage.py tests/builds/test_reading_trouble.py "$@"
