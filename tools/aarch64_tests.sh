#!/usr/bin/env bash
# Builds the kernels of core/numbers and of the packets' hash, and their tests, for 64-bit ARM, in build/aarch64, and
# runs them under qemu.
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=${1:-$(nproc)}
cmake -S tests/aarch64 -B build/aarch64 -G Ninja >/dev/null
cmake --build build/aarch64 -j "$jobs"
tests=(qemu-aarch64-static build/aarch64/test_numbers)
"${tests[@]}" --gtest_list_tests | grep -q /neon || { echo "no kernels for NEON were built" >&2; exit 1; }
NETFOLD_FUZZ_FOLDS=${NETFOLD_FUZZ_FOLDS:-5000} "${tests[@]}" --gtest_brief=1
