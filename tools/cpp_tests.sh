#!/usr/bin/env bash
# Builds the C++ tests in build/test, asserts on, and runs them.
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=${1:-$(nproc)}
cmake -S . -B build/test -G Ninja -DNETFOLD_TESTS=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O2 -g1" >/dev/null
cmake --build build/test -j "$jobs"
ctest --test-dir build/test -j "$jobs" --output-on-failure --timeout 300 --no-tests=error
