#!/usr/bin/env bash
# Writes python/netfold/_core.pyi, the types of the compiled module, from that module as it was built last.
#
#   tools/stubs.sh [VENV [check]]     check: only compare, and fail where the file is out of date
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${1:-.venv}
mode=${2:-write}
stub=python/netfold/_core.pyi

made=$(mktemp --suffix=.pyi)
trap 'rm -f "$made"' EXIT
if ! "$venv/bin/python" -m nanobind.stubgen -q -m netfold._core -o "$made"; then
  echo "stubs: netfold._core cannot be loaded: make build" >&2
  exit 1
fi
if [ "$mode" = write ]; then
  install -m 644 "$made" "$stub"
elif ! diff -u "$stub" "$made"; then
  echo "stubs: $stub is out of date: make stubs" >&2
  exit 1
fi
