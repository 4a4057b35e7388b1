#!/usr/bin/env bash
# `make deb`: writes netfold-switch_VERSION_ARCHITECTURE.deb to dist/, for this machine's distribution: the switch with
# DPDK, its service and its manual page. It uses the distribution's libraries, and no Python. The same commit makes the
# same bytes.
#
#   tools/deb.sh [FOLDER [PROGRAM]]      FOLDER: dist; PROGRAM: a netfold-switch that is built (default: builds it)
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:-dist}
program=${2:-}
build=build/deb
die() { printf 'deb: %s\n' "$*" >&2; exit 1; }

command -v dpkg-shlibdeps >/dev/null || die "install dpkg-dev: it finds which packages the program needs"
if [ -z "$program" ]; then
  cmake -S . -B $build -G Ninja >/dev/null
  cmake --build $build --target netfold-switch >/dev/null
  program=$build/apps/netfold-switch
fi
[[ $(ldd "$program") == *librte_eal* ]] ||
  die "$program is built without DPDK: install libdpdk-dev and build it again"

version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
architecture=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y pyproject.toml)}
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/debian/netfold-switch

place() { install -D -m "$1" "$2" "$root$3"; }
place 755 "$program" /usr/bin/netfold-switch
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/bin/netfold-switch"
place 644 packaging/switch.toml /etc/netfold/switch.toml
place 644 packaging/systemd/netfold.sysusers.conf /usr/lib/sysusers.d/netfold-switch.conf
sed 's#/opt/netfold/bin/netfold switch#/usr/bin/netfold-switch#; s#man:systemd.service(5)#man:netfold-switch(1)#' \
  packaging/systemd/netfold-switch.service >"$work/service"
place 644 "$work/service" /lib/systemd/system/netfold-switch.service
python3 tools/dist/manual.py "$program" "$(date -u -d "@$SOURCE_DATE_EPOCH" +%F)" | gzip -9n >"$work/manual"
place 644 "$work/manual" /usr/share/man/man1/netfold-switch.1.gz

{
  printf 'netfold-switch (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md of Netfold.\n\n' "$version"
  printf ' -- %s  %s\n' "$(sed -n 's/^Maintainer: //p' packaging/debian/control)" "$(date -uR -d "@$SOURCE_DATE_EPOCH")"
} | gzip -9n >"$work/changelog"
place 644 "$work/changelog" /usr/share/doc/netfold-switch/changelog.gz
python3 tools/dist/copyright.py >"$work/copyright"
place 644 "$work/copyright" /usr/share/doc/netfold-switch/copyright

mkdir -p "$root/DEBIAN"  # by which dpkg-shlibdeps knows the folder of a package
printf 'Source: netfold\n\nPackage: netfold-switch\nArchitecture: any\n' >"$work/debian/control"
libraries=$(cd "$work" && dpkg-shlibdeps -O debian/netfold-switch/usr/bin/netfold-switch | sed 's/^shlibs:Depends=//')

sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@LIBRARIES@/$libraries/
     s/@SIZE@/$(du -sk --apparent-size "$root" | cut -f1)/" packaging/debian/control >"$root/DEBIAN/control"
echo /etc/netfold/switch.toml >"$root/DEBIAN/conffiles"
install -m 755 packaging/debian/{postinst,prerm,postrm} "$root/DEBIAN/"
(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
chmod -R u=rwX,go=rX "$root"
mkdir -p "$folder"
dpkg-deb --root-owner-group -Zxz --build "$root" "$folder/netfold-switch_${version}_$architecture.deb" >/dev/null
