#!/usr/bin/env bash
# Formatters and linters, pinned by tools/requirements.lock. `tools/lint.sh VENV fix` mends what it can by itself.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${1:-.venv}
mode=${2:-check}
mapfile -t cpp < <(git -c safe.directory='*' ls-files -co --exclude-standard -- '*.h' '*.cc' '*.inc')
mapfile -t shell < <(git -c safe.directory='*' grep -lE -m1 '^#!.*\bbash$' -- tools .ci)

if [ "$mode" = fix ]; then
  "$venv/bin/ruff" check --quiet --fix . || true
  "$venv/bin/ruff" format .
  "$venv/bin/clang-format" -i "${cpp[@]}"
  exit
fi

types=()
if ! "$venv/bin/python" -c 'import importlib.util as i, sys; sys.exit(i.find_spec("torch") is None)'; then
  # Without PyTorch (`make check`) its types are unknown: what is made from them is checked where it is installed.
  types=(--ignore-missing-imports --allow-subclassing-any --allow-untyped-decorators --no-warn-return-any
    --no-warn-unused-ignores --disable-error-code=valid-type)
fi

status=0
"$venv/bin/ruff" check . || status=1
"$venv/bin/ruff" format --check . || status=1
"$venv/bin/clang-format" --dry-run -Werror "${cpp[@]}" || status=1
"$venv/bin/python" -m mypy "${types[@]}" || status=1
tools/stubs.sh "$venv" check || status=1
shellcheck "${shell[@]}" || status=1
"$venv/bin/python" tools/plain_words.py || status=1
exit $status
