#!/usr/bin/env bash
# `make test`: installs what the tests need, then runs them all. pytest is last; a stage that failed before it is
# reported once more there, as a failed test with the end of what the stage printed (tests/python/test_stages.py).
# Random tests draw from a fresh seed, which is printed first and with each failed stage; NETFOLD_SEED=... make test
# repeats a run.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${1:-.venv}
jobs=$(nproc)
export PYTHONDONTWRITEBYTECODE=  # what several tests import is compiled once
export NETFOLD_SEED=${NETFOLD_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
failed=()
logs=build/stages
mkdir -p "$logs"

stage() {  # stage NAME COMMAND...: runs it, says how long it took, remembers a failure
  local name=$1 start=$SECONDS outcome=passed
  shift
  printf '\n=== %s\n' "$name"
  "$@" 2>&1 | tee "$logs/$name.log" || { outcome="FAILED (NETFOLD_SEED=$NETFOLD_SEED)"; failed+=("$name"); }
  printf '=== %s %s in %d s\n' "$name" "$outcome" $((SECONDS - start))
}

printf '=== NETFOLD_SEED=%s\n' "$NETFOLD_SEED"
stage setup tools/setup.sh "$venv" test
[ ${#failed[@]} = 0 ] || exit 1
stage build make --no-print-directory build VENV="$venv"
[ ${#failed[@]} = 0 ] || exit 1
stage lint tools/lint.sh "$venv"
stage cpp tools/cpp_tests.sh "$jobs"
stage aarch64 tools/aarch64_tests.sh "$jobs"
stage wheel tools/dist.sh "$venv" build/dist/aarch64/made aarch64  # test_dist.py need not compile it then
stage tidy "$venv/bin/python" tools/tidy.py "$venv/bin/clang-tidy" "$jobs"
# `make sanitize` gives the switch ten million hostile packets.
stage addresses env NETFOLD_FUZZ_PACKETS="${NETFOLD_FUZZ_PACKETS:-2000000}" tools/sanitize.sh address "$jobs"
stage threads tools/sanitize.sh thread "$jobs"

# One more at a time than there are cores: many of these tests mostly wait for processes.
printf '\n=== python\n'
export NETFOLD_FAILED_STAGES="${failed[*]}" NETFOLD_STAGE_LOGS=$PWD/$logs
exec "$venv/bin/python" -m pytest -n "$((jobs + 1))" --durations 30 --durations-min 5
