#!/usr/bin/env bash
# Builds C++ tests with sanitizers in build/sanitize-KIND, and runs them.
#
#   tools/sanitize.sh address [JOBS]   addresses and undefined behaviour: what meets bytes from the network, and the
#                                      threads behind it. NETFOLD_FUZZ_PACKETS: hostile packets for the switch
#   tools/sanitize.sh thread [JOBS]    data races: everything that shares memory between threads
set -euo pipefail
cd "$(dirname "$0")/.."

kind=${1:-address}
jobs=${2:-$(nproc)}
case $kind in  # the longest program first
  address)
    programs=(test_fuzz test_group test_protocol test_switch test_wire)
    export GTEST_FILTER='-Incast.*:*/BothWays.*'  # how long it takes in virtual time, not what is done
    ;;
  thread) programs=(test_group test_switch test_link test_base) ;;
  *) echo "sanitize: unknown kind '$kind': address or thread" >&2; exit 2 ;;
esac
export NETFOLD_FUZZ_PACKETS=${NETFOLD_FUZZ_PACKETS:-10000000}
export GTEST_BRIEF=1 ASAN_OPTIONS=handle_abort=1 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1

cmake --preset "$kind" >/dev/null
cmake --build "build/sanitize-$kind" -j "$jobs" --target "${programs[@]}"
# In eighths, one more at a time than there are cores: test_group mostly waits. What failed is printed last.
logs=$PWD/build/sanitize-$kind/logs
rm -rf "$logs" && mkdir -p "$logs"
eighth() {  # eighth PROGRAM SHARD: one eighth of a program's tests; its log ends in .failed unless all passed
  local log=$logs/$1.$2
  GTEST_TOTAL_SHARDS=8 GTEST_SHARD_INDEX=$2 timeout 900 "build/sanitize-$kind/tests/$1" >"$log" 2>&1 && return
  echo "$1, eighth $2: exit status $? (124: not done in 900 s)" >>"$log"
  mv "$log" "$log.failed"
}
export -f eighth && export kind logs
for program in "${programs[@]}"; do printf '%s\n' "$program "{0..7}; done |
  xargs -P $((jobs + 1)) -L 1 bash -c 'eighth "$@"' eighth
tail -qn 1 "$logs"/*
shopt -s nullglob
failures=("$logs"/*.failed)
[ ${#failures[@]} = 0 ] || { tail -n 40 "${failures[@]}"; exit 1; }
