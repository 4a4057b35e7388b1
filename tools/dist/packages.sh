#!/usr/bin/env bash
# Unpacks Debian packages of any processor into FOLDER. Nothing is installed, and this machine's settings of apt stay
# as they are.
#
#   tools/dist/packages.sh PROCESSOR FOLDER PACKAGE...     with all packages that they need
#   tools/dist/packages.sh --alone PROCESSOR FOLDER PACKAGE...     only they (a PACKAGE may be a pattern of apt)
set -euo pipefail

die() { printf 'packages: %s\n' "$*" >&2; exit 1; }

alone=
if [ "$1" = --alone ]; then
  alone=1
  shift
fi
case $1 in
  x86_64) architecture=amd64 ;;
  aarch64) architecture=arm64 ;;
  *) die "the processor '$1' is not known: x86_64 or aarch64" ;;
esac
folder=$2
shift 2
command -v apt-get >/dev/null || die "packages come through apt: use Debian"

apt=$(mktemp -d)
trap 'rm -rf "$apt"' EXIT
mkdir -p "$apt"/{lists/partial,archives/partial} "$folder"
touch "$apt/status"  # no package is installed
options=(-qq -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture"
  -o "Dir::State::lists=$apt/lists" -o "Dir::State::status=$apt/status" -o "Dir::Cache::archives=$apt/archives"
  -o "Dir::Cache::pkgcache=" -o "Dir::Cache::srcpkgcache=" -o "APT::Sandbox::User=$(id -un)"
  -o "APT::Install-Recommends=false")
apt-get "${options[@]}" update || true  # some repositories have nothing for this processor
if [ "$alone" ]; then
  (cd "$apt/archives" && apt-get "${options[@]}" download "$@" >/dev/null)
else
  apt-get "${options[@]}" install --yes --download-only "$@" >/dev/null
fi || die "apt has not all of these packages for $architecture: $*"
for file in "$apt"/archives/*.deb; do dpkg-deb --extract "$file" "$folder"; done
