#!/usr/bin/env bash
# `make check`: format, lint, types, the C++ tests that neither sleep nor fork, and clusters in virtual time. It needs
# neither PyTorch nor DPDK nor a browser. NETFOLD_SEED=... repeats a run.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${1:-.venv}
jobs=$(nproc)
clusters=1000
export NETFOLD_SEED=${NETFOLD_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
programs=(test_base test_link test_numbers test_protocol test_schedule test_sim test_switch test_wire)
failed=()

step() {  # step NAME COMMAND...: runs it, remembers a failure
  local name=$1 start=$SECONDS
  shift
  "$@" || failed+=("$name")
  printf 'check: %s, %d s\n' "$name" $((SECONDS - start)) >&2
}

printf 'check: NETFOLD_SEED=%s\n' "$NETFOLD_SEED" >&2
tools/setup.sh "$venv" check
make --no-print-directory build VENV="$venv"
cmake --preset test >/dev/null
cmake --build build/test -j "$jobs" --target "${programs[@]}" netfold-vopr

step lint tools/lint.sh "$venv"
step tests xargs -P "$jobs" -I{} timeout 120 build/test/tests/{} --gtest_brief=1 < <(printf '%s\n' "${programs[@]}")
step clusters build/test/apps/netfold-vopr --seeds "$clusters" --from "$NETFOLD_SEED" --jobs "$jobs"
[ ${#failed[@]} = 0 ] && exit
printf 'check: failed: %s (repeat: NETFOLD_SEED=%s make check)\n' "${failed[*]}" "$NETFOLD_SEED" >&2
exit 1
