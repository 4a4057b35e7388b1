#!/usr/bin/env bash
# `make dist`: writes a wheel to dist/ that runs on every Linux machine with this processor, glibc 2.28 or newer (as
# torch's own wheels need) and Python. It holds all programs and libraries of Netfold; the libraries that they use are
# linked into them (tools/dist/static.cmake), and their licences are in netfold/licenses. DPDK and verbs are left out:
# they must fit the machine's drivers.
#
#   tools/dist.sh [VENV [FOLDER]]       VENV: .venv, made by tools/setup.sh with purpose dist or test; FOLDER: dist
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$(realpath "${1:-.venv}")
folder=${2:-dist}
work=$PWD/build/dist
sources=$work/sources
libraries=$work/libraries
processor=$(uname -m)

die() { printf 'dist: %s\n' "$*" >&2; exit 1; }

# The sources of the libraries of this machine's distribution: their versions are those of its headers.
fetch_sources() {
  [ -e "$sources/complete" ] && return
  command -v apt-get >/dev/null || die "the sources of the libraries come through apt: build on Debian or Ubuntu"
  local apt=$work/apt file name
  rm -rf "$sources" "$apt"
  mkdir -p "$sources" "$apt"/{parts,lists/partial,archives/partial}
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    [ -f "$file" ] && sed -E 's/^deb /deb-src /; s/^Types:.*/Types: deb-src/' "$file" >"$apt/parts/${file##*/}"
  done
  local options=(-qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$apt/parts"
    -o "Dir::State::lists=$apt/lists" -o "Dir::Cache::archives=$apt/archives" -o "Dir::Cache::pkgcache="
    -o "Dir::Cache::srcpkgcache=" -o "APT::Sandbox::User=$(id -un)")
  apt-get "${options[@]}" update || true  # some repositories have no sources
  for name in fmtlib spdlog libisal cpp-httplib; do
    (cd "$apt" && apt-get "${options[@]}" source --download-only "$name") || die "apt has no sources of $name"
    dpkg-source --no-check -x "$apt/$name"_*.dsc "$sources/$name" >/dev/null
  done
  touch "$sources/complete"
}

build_libraries() {
  cmake -S tools/dist/libraries -B "$libraries" -G Ninja -DSOURCES="$sources" >/dev/null
  cmake --build "$libraries" >/dev/null
  mkdir -p "$libraries/httplib"
  cp "$sources/cpp-httplib/httplib.h" "$libraries/httplib/"
  cp "$("${CXX:-g++}" -print-file-name=libsodium.a)" "$libraries/"
}

fetch_sources
build_libraries
rm -rf "$libraries/licenses"
"$venv/bin/python" tools/dist/licenses.py "$libraries/licenses" "${CXX:-g++}"
rm -rf "$work/wheel"
"$venv/bin/pip" wheel -q . --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$work/wheel" \
  -C build-dir="build/wheel" -C cmake.define.NETFOLD_DIST="$libraries"
PATH=$venv/bin:$PATH "$venv/bin/python" -m auditwheel repair --only-plat --plat "manylinux_2_28_$processor" \
  --exclude libmpi.so.40 --wheel-dir "$folder" "$work"/wheel/*.whl
