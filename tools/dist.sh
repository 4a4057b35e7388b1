#!/usr/bin/env bash
# `make dist`: writes a wheel to dist/ that runs on every Linux machine with PROCESSOR, glibc 2.28 or newer (as torch's
# own wheels need) and Python. It holds all programs and libraries of Netfold; the libraries that they use are linked
# into them (tools/dist/static.cmake), and their licences are in netfold/licenses. DPDK and verbs are left out: they
# must fit the machine's drivers.
#
#   tools/dist.sh [VENV [FOLDER [PROCESSOR]]]       VENV: .venv, made by tools/setup.sh with purpose dist or test;
#   FOLDER: dist; PROCESSOR: this machine's, or x86_64 or aarch64
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$(realpath "${1:-.venv}")
folder=${2:-dist}
processor=${3:-$(uname -m)}
sources=$PWD/build/dist/sources
work=$PWD/build/dist/$processor
libraries=$work/libraries
root=$work/root
compiler=${CXX:-g++}
sodium=$("$compiler" -print-file-name=libsodium.a)
settings=(-C "build-dir=build/wheel-$processor" -C "cmake.define.NETFOLD_DIST=$libraries")

die() { printf 'dist: %s\n' "$*" >&2; exit 1; }

mkdir -p build/dist
exec {lock}>build/dist/.lock  # tests make wheels beside each other
flock "$lock"

# Sets what a build for another processor than this machine's needs (tools/dist/cross.cmake).
cross_compile() {
  [[ $processor == x86_64 || $processor == aarch64 ]] || die "wheels are for x86_64 or aarch64, not for $processor"
  compiler=$processor-linux-gnu-g++
  command -v "$compiler" >/dev/null || die "install g++-${processor//_/-}-linux-gnu, which compiles for $processor"
  if [ ! -e "$root.complete" ]; then
    rm -rf "$root"
    tools/dist/packages.sh "$processor" "$root" libfmt-dev libspdlog-dev libsodium-dev libisal-dev libcpp-httplib-dev \
      nlohmann-json3-dev libcli11-dev libexpected-dev libhwy-dev libpython3-dev
    tools/dist/packages.sh --alone "$processor" "$root" libopenmpi-dev '~n^libopenmpi[0-9]'
    touch "$root.complete"
  fi
  export NETFOLD_DIST_PROCESSOR=$processor NETFOLD_DIST_ROOT=$root CMAKE_TOOLCHAIN_FILE=$PWD/tools/dist/cross.cmake
  sodium=$root/usr/lib/$processor-linux-gnu/libsodium.a
  local version
  version=$("$venv/bin/python" -c 'import sys; print(*sys.version_info[:2], sep=".")')
  [ -e "$root/usr/include/python$version/Python.h" ] ||
    die "$venv has Python $version, and this distribution has no headers of that for $processor"
  settings+=(-C "cmake.define.Python_INCLUDE_DIR=$root/usr/include/python$version")
  export _PYTHON_HOST_PLATFORM=linux-$processor  # by which scikit-build-core names the wheel
}

# The sources of the libraries of this machine's distribution: their versions are those of its headers.
fetch_sources() {
  [ -e "$sources/complete" ] && return
  command -v apt-get >/dev/null || die "the sources of the libraries come through apt: build on Debian or Ubuntu"
  local apt=$PWD/build/dist/apt file name
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
  cp "$sodium" "$libraries/"
}

[ "$processor" = "$(uname -m)" ] || cross_compile
fetch_sources
build_libraries
rm -rf "$libraries/licenses"
"$venv/bin/python" tools/dist/licenses.py "$libraries/licenses" "$compiler"
rm -rf "$work/wheel"
"$venv/bin/pip" wheel -q . --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$work/wheel" \
  "${settings[@]}"
PATH=$venv/bin:$PATH "$venv/bin/python" tools/dist/audit.py "$processor" repair --only-plat \
  --plat "manylinux_2_28_$processor" --exclude libmpi.so.40 --wheel-dir "$folder" "$work"/wheel/*.whl
