#!/usr/bin/env bash
# Builds what meets bytes from the network with the address and undefined-behaviour sanitizers in build/sanitize, and
# runs it. NETFOLD_FUZZ_PACKETS says how many random and mutated packets are thrown at the switch.
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=${1:-$(nproc)}
programs=(test_wire test_jobs test_frames test_protocol test_fuzz)
export NETFOLD_FUZZ_PACKETS=${NETFOLD_FUZZ_PACKETS:-10000000}
export ASAN_OPTIONS=handle_abort=1 UBSAN_OPTIONS=print_stacktrace=1

cmake -S . -B build/sanitize -G Ninja -DNETFOLD_TESTS=ON -DNETFOLD_SANITIZE=address,undefined \
  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1" >/dev/null
cmake --build build/sanitize -j "$jobs" --target "${programs[@]}"
status=0
for program in "${programs[@]}"; do
  timeout 900 "build/sanitize/tests/$program" --gtest_brief=1 || status=1
done
exit $status
