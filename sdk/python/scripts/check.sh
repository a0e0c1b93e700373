#!/bin/sh
# Tests of the Python SDK and of the Python examples; mypy where it is installed.
#
#   scripts/check.sh            all tests, then mypy
#   PYTHON=python3.12 scripts/check.sh
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
examples=$(cd ../../examples/plugins && pwd)
path=src:tests
tests="test_units test_harness test_documentation test_wire"
for folder in "$examples"/*/; do
    for test in "$folder"test_*.py; do
        [ -e "$test" ] || continue
        path="$path:${folder%/}"
        tests="$tests $(basename "$test" .py)"
    done
done
# shellcheck disable=SC2086
PYTHONPATH="$path" "$PYTHON" -m unittest $tests
if "$PYTHON" -m mypy --version >/dev/null 2>&1; then
    "$PYTHON" -m mypy
    for folder in greeter redactor feed; do
        MYPYPATH=src:"$examples/$folder" "$PYTHON" -m mypy --strict "$examples/$folder"
    done
else
    echo "mypy is not installed: types are not checked" >&2
fi
