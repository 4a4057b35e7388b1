#!/usr/bin/env bash
# `make test`: installs what the tests need, then runs them all. pytest is last; a stage that failed before it is
# reported once more there, as a failed test (tests/python/test_stages.py).
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${1:-.venv}
jobs=$(nproc)
failed=()

stage() {  # stage NAME COMMAND...: runs it, says how long it took, remembers a failure
  local name=$1 start=$SECONDS outcome=passed
  shift
  printf '\n=== %s\n' "$name"
  "$@" || { outcome=FAILED; failed+=("$name"); }
  printf '=== %s %s in %d s\n' "$name" "$outcome" $((SECONDS - start))
}

stage setup tools/setup.sh "$venv" test
[ ${#failed[@]} = 0 ] || exit 1
stage build make --no-print-directory build VENV="$venv"
[ ${#failed[@]} = 0 ] || exit 1
stage lint tools/lint.sh "$venv"
stage cpp tools/cpp_tests.sh "$jobs"
stage sanitize tools/sanitize.sh "$jobs"

printf '\n=== python\n'
NETFOLD_FAILED_STAGES="${failed[*]}" exec "$venv/bin/python" -m pytest
