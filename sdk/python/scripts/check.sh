#!/bin/sh
# Tests of the Python SDK and of the Python examples; mypy where it is installed.
#
#   scripts/check.sh
#   PYTHON=python3.12 scripts/check.sh
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
examples=../../examples/plugins
"$PYTHON" scripts/run_tests.py
if "$PYTHON" -m mypy --version >/dev/null 2>&1; then
    "$PYTHON" -m mypy
    MYPYPATH=src:$examples/greeter:$examples/redactor:$examples/feed \
        "$PYTHON" -m mypy --strict $examples/greeter $examples/redactor $examples/feed
else
    echo "mypy is not installed: types are not checked" >&2
fi
