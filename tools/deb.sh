#!/usr/bin/env bash
# `make deb`: writes netfold-switch_VERSION_ARCHITECTURE.deb to dist/: the switch, its service and its manual page. It
# needs no Python. The same commit makes the same bytes.
#
# For this machine's processor it is for this machine's distribution: with DPDK, and with the distribution's libraries.
# For another processor it holds the program of the wheel for that (tools/dist.sh), which runs on every Debian, without
# DPDK.
#
#   tools/deb.sh [FOLDER [PROGRAM]]        FOLDER: dist; PROGRAM: a netfold-switch that is built (default: builds it)
#   tools/deb.sh FOLDER WHEEL PROCESSOR    WHEEL: of PROCESSOR, aarch64 or x86_64
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:-dist}
program=${2:-}
processor=${3:-}
build=build/deb
die() { printf 'deb: %s\n' "$*" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The program of this machine's distribution. Sets program, architecture and ask, the words that run it.
take_built() {
  command -v dpkg-shlibdeps >/dev/null || die "install dpkg-dev: it finds which packages the program needs"
  if [ -z "$program" ]; then
    cmake -S . -B $build -G Ninja >/dev/null
    cmake --build $build --target netfold-switch >/dev/null
    program=$build/apps/netfold-switch
  fi
  [[ $(ldd "$program") == *librte_eal* ]] ||
    die "$program is built without DPDK: install libdpdk-dev and build it again"
  architecture=$(dpkg --print-architecture)
  ask=("$program")
}

# The program of a wheel. Beside the above sets libraries, the packages that it needs.
take_from_wheel() {
  case $processor in
    aarch64) architecture=arm64 ;;
    x86_64) architecture=amd64 ;;
    *) die "packages are for x86_64 or aarch64, not for $processor" ;;
  esac
  python3 -m zipfile -e "$program" "$work/wheel"
  program=$work/wheel/netfold/bin/netfold-switch
  chmod 755 "$program"
  local name
  for name in $(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    [[ $name =~ ^(lib(c|m|dl|rt|pthread)\.so|libgcc_s\.so|ld-linux-) ]] ||
      die "the program needs $name, which no wheel may"
  done
  libraries="libc6 (>= 2.28), libgcc-s1 | libgcc1"
  ask=("$program")
  [ "$processor" = "$(uname -m)" ] || ask=("qemu-$processor-static" -L "build/dist/$processor/root" "$program")
  command -v "${ask[0]}" >/dev/null || die "install qemu-user-static: it asks the program for its options"
}

if [ -z "$processor" ]; then take_built; else take_from_wheel; fi

version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y pyproject.toml)}
export SOURCE_DATE_EPOCH
# As Debian's other tools take them: who makes a package for others is its maintainer.
maintainer="${DEBFULLNAME:-Netfold developers} <${DEBEMAIL:-maintainers@netfold.invalid}>"
root=$work/debian/netfold-switch

place() { install -D -m "$1" "$2" "$root$3"; }
place 755 "$program" /usr/bin/netfold-switch
# The programs of wheels are stripped already, and this machine's strip may not know their processor.
if [ -z "$processor" ]; then
  strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/bin/netfold-switch"
fi
place 644 packaging/switch.toml /etc/netfold/switch.toml
place 644 packaging/systemd/netfold.sysusers.conf /usr/lib/sysusers.d/netfold-switch.conf
sed 's#/opt/netfold/bin/netfold switch#/usr/bin/netfold-switch#; s#man:systemd.service(5)#man:netfold-switch(1)#' \
  packaging/systemd/netfold-switch.service >"$work/service"
place 644 "$work/service" /lib/systemd/system/netfold-switch.service
python3 tools/dist/manual.py "$(date -u -d "@$SOURCE_DATE_EPOCH" +%F)" "${ask[@]}" | gzip -9n >"$work/manual"
place 644 "$work/manual" /usr/share/man/man1/netfold-switch.1.gz

{
  printf 'netfold-switch (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md of Netfold.\n\n' "$version"
  printf ' -- %s  %s\n' "$maintainer" "$(date -uR -d "@$SOURCE_DATE_EPOCH")"
} | gzip -9n >"$work/changelog"
place 644 "$work/changelog" /usr/share/doc/netfold-switch/changelog.gz
python3 tools/dist/copyright.py ${processor:+linked} >"$work/copyright"
place 644 "$work/copyright" /usr/share/doc/netfold-switch/copyright

mkdir -p "$root/DEBIAN"  # by which dpkg-shlibdeps knows the folder of a package
printf 'Source: netfold\n\nPackage: netfold-switch\nArchitecture: any\n' >"$work/debian/control"
if [ -z "$processor" ]; then
  found=$(cd "$work" && dpkg-shlibdeps -O debian/netfold-switch/usr/bin/netfold-switch)
  libraries=${found#shlibs:Depends=}
fi

sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@LIBRARIES@/$libraries/
     s|@MAINTAINER@|$maintainer|
     s/@SIZE@/$(du -sk --apparent-size "$root" | cut -f1)/" packaging/debian/control >"$root/DEBIAN/control"
[ -z "$processor" ] || sed -i '/^Suggests: dpdk$/d; /^ With --dpdk/,/^ \.$/d' "$root/DEBIAN/control"
echo /etc/netfold/switch.toml >"$root/DEBIAN/conffiles"
install -m 755 packaging/debian/{postinst,prerm,postrm} "$root/DEBIAN/"
(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
chmod -R u=rwX,go=rX "$root"
mkdir -p "$folder"
dpkg-deb --root-owner-group -Zxz --build "$root" "$folder/netfold-switch_${version}_$architecture.deb" >/dev/null
