#!/usr/bin/env bash
# Builds the C++ tests in build/test, asserts on, and runs them.
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=${1:-$(nproc)}
cmake --preset test >/dev/null
cmake --build build/test -j "$jobs"
# One more at a time than there are cores: those of test_group mostly wait.
ctest --test-dir build/test -j "$((jobs + 1))" --output-on-failure --timeout 300 --no-tests=error
