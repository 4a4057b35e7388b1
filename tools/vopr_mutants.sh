#!/usr/bin/env bash
# Shows that netfold-vopr finds bugs: puts each defect of tests/mutants into a scratch copy, one at a time, and
# expects a failure within the first SEEDS seeds. Usage: tools/vopr_mutants.sh [SEEDS] [NAME ...]
set -euo pipefail
cd "$(dirname "$0")/.."

seeds=${1:-1000}
shift $(($# > 0))
names=("$@")
if [[ ${#names[@]} -eq 0 ]]; then
  for patch in tests/mutants/*.patch; do names+=("$(basename "$patch" .patch)"); done
fi

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z CMakeLists.txt CMakePresets.json core apps bindings/c bindings/mpi tests |
  xargs -0 cp --parents -t "$copy"
(cd "$copy" && cmake --preset test >/dev/null)

missed=0
for name in "${names[@]}"; do
  patch --quiet --strip=1 --directory="$copy" <"tests/mutants/$name.patch"
  cmake --build "$copy/build/test" --target netfold-vopr -j "$(nproc)" >"$copy/build.log" ||
    { cat "$copy/build.log"; exit 1; }
  if out=$("$copy/build/test/apps/netfold-vopr" --seeds "$seeds" --until-failure --jobs "$(nproc)" 2>/dev/null); then
    echo "$name: not found within $seeds seeds"
    missed=$((missed + 1))
  else
    echo "$name: $(grep --max-count=1 failed <<<"$out" | cut -c1-160)"
  fi
  patch --quiet --strip=1 --reverse --directory="$copy" <"tests/mutants/$name.patch"
done
echo "${#names[@]} defects, $missed missed"
exit $((missed > 0))
