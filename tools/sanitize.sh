#!/usr/bin/env bash
# Builds what meets bytes from the network, and the engine's threads behind it, with the address and undefined-behaviour
# sanitizers in build/sanitize, and runs it. NETFOLD_FUZZ_PACKETS: random and mutated packets thrown at the switch.
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=${1:-$(nproc)}
programs=(test_fuzz test_engine test_protocol test_frames test_jobs test_wire)  # the longest first
export NETFOLD_FUZZ_PACKETS=${NETFOLD_FUZZ_PACKETS:-10000000}
export ASAN_OPTIONS=handle_abort=1 UBSAN_OPTIONS=print_stacktrace=1

cmake -S . -B build/sanitize -G Ninja -DNETFOLD_TESTS=ON -DNETFOLD_SANITIZE=address,undefined \
  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1" >/dev/null
cmake --build build/sanitize -j "$jobs" --target "${programs[@]}"
# Side by side: test_engine mostly waits.
printf '%s\n' "${programs[@]}" | xargs -P "$jobs" -I{} timeout 900 build/sanitize/tests/{} --gtest_brief=1
