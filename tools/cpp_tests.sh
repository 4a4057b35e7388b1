#!/usr/bin/env bash
# Builds the C++ tests in build/test, asserts on, and runs them.
#
#   tools/cpp_tests.sh [JOBS]
#   tools/cpp_tests.sh configure    only that. A new folder compiles files in batches: its first build is a whole one
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=${1:-$(nproc)}
batches=()
[ -d build/test ] || batches=(-DNETFOLD_UNITY=ON)
cmake --preset test "${batches[@]}" >/dev/null
[ "$jobs" != configure ] || exit 0
cmake --build build/test -j "$jobs"
# One more at a time than there are cores: those of test_group mostly wait.
ctest --test-dir build/test -j "$((jobs + 1))" --output-on-failure --timeout 300 --no-tests=error
