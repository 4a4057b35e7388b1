#!/usr/bin/env bash
# Installs what Netfold needs on this machine: system packages (through apt where there is one) and pinned Python
# packages into a virtual environment. Run it as often as you like: what is there already is left alone.
#
#   tools/setup.sh [VENV [PURPOSE]]     VENV: .venv
#   PURPOSE: demo (to build and to train), check (to build, and `make check`: no PyTorch), dist (`make dist`: no
#   PyTorch), site (`make site`: no compiler, no PyTorch) or test (every test)
#   NETFOLD_TORCH_INDEX: where the demo's PyTorch comes from on a machine without an NVIDIA GPU; pytorch.org
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${1:-.venv}
purpose=${2:-demo}
python=${PYTHON:-python3}
torch_index=${NETFOLD_TORCH_INDEX:-https://download.pytorch.org/whl/cpu}

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

# What it is for | how to see that it is there | its package in apt | dnf | pacman. Every purpose needs the rows of
# demo; test needs those of check and dist too. A name of another maker's program counts as well, e.g. a Chrome that was
# there. (lintian is only for Debian: a machine with another package manager passes without it.)
requirements() {
  cat <<'TABLE'
demo|command g++|g++|gcc-c++|gcc
demo|command cmake|cmake|cmake|cmake
demo|command ninja|ninja-build|ninja-build|ninja
demo|command pkg-config|pkg-config|pkgconf-pkg-config|pkgconf
demo|command flock|util-linux|util-linux|util-linux
demo|header fmt/core.h|libfmt-dev|fmt-devel|fmt
demo|header spdlog/spdlog.h|libspdlog-dev|spdlog-devel|spdlog
demo|header CLI/CLI.hpp|libcli11-dev|cli11-devel|cli11
demo|header sodium.h|libsodium-dev|libsodium-devel|libsodium
demo|header nlohmann/json.hpp|nlohmann-json3-dev|json-devel|nlohmann-json
demo|header httplib.h|libcpp-httplib-dev|cpp-httplib-devel|cpp-httplib
demo|header tl/expected.hpp|libexpected-dev|expected-devel|tl-expected
demo|header hwy/highway.h|libhwy-dev|highway-devel|highway
demo|pkg_config libisal|libisal-dev|isa-l-devel|isa-l
demo|python_venv|python3-venv|python3|python
demo|python_header|python3-dev|python3-devel|python
dist|command nasm|nasm|nasm|nasm
dist|command dpkg-source|dpkg-dev|dpkg-dev|dpkg
dist|pkg_config libdpdk|libdpdk-dev|dpdk-devel|dpdk
dist|command mpicc|libopenmpi-dev|openmpi-devel|openmpi
check|header gtest/gtest.h|libgtest-dev|gtest-devel|gtest
check|header gmock/gmock.h|libgmock-dev|gmock-devel|gtest
test|command lintian dnf pacman|lintian|lintian|lintian
test|command mpirun|openmpi-bin|openmpi|openmpi
test|header simgrid/s4u.hpp|libsimgrid-dev|simgrid-devel|simgrid
test|command ip|iproute2|iproute|iproute2
test|command nft|nftables|nftables|nftables
test|command ethtool|ethtool|ethtool|ethtool
test|command dropbear|dropbear-bin|dropbear|dropbear
test|command slurmctld|slurmctld|slurm-slurmctld|slurm-llnl
test|command slurmd|slurmd|slurm-slurmd|slurm-llnl
test|command salloc|slurm-client|slurm|slurm-llnl
test|command ssh|openssh-client|openssh-clients|openssh
test|command pkill|procps|procps-ng|procps-ng
test|command promtool|prometheus|golang-github-prometheus|prometheus
test|command tshark|tshark|wireshark-cli|wireshark-cli
test|command chromium chromium-browser google-chrome|chromium|chromium|chromium
check|command shellcheck|shellcheck|ShellCheck|shellcheck
check|command git|git|git|git
check|command ccache|ccache|ccache|ccache
test|command aarch64-linux-gnu-g++|g++-aarch64-linux-gnu|gcc-c++-aarch64-linux-gnu|aarch64-linux-gnu-gcc
test|command qemu-aarch64-static|qemu-user-static|qemu-user-static|qemu-user-static
TABLE
}

command_() {  # any one of the names
  local name
  for name in "$@"; do
    command -v "$name" >/dev/null 2>&1 && return
    [ -x "/usr/sbin/$name" ] && return
  done
  return 1
}
header_() { printf '#include <%s>\n' "$1" | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1; }
pkg_config_() { pkg-config --exists "$1" 2>/dev/null; }
python_venv_() { "$python" -c 'import ensurepip, venv' 2>/dev/null; }
python_header_() {
  "$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
}

missing() {  # prints, for every requirement that is not met, its package in column $1 of the table
  local column=$1 row need probe
  while IFS= read -r row; do
    IFS='|' read -r need probe _ <<<"$row"
    case $need:$purpose in
      *:site | check:demo | check:dist | dist:demo | dist:check | test:demo | test:check | test:dist) continue ;;
    esac
    read -ra probe <<<"$probe"
    "${probe[0]}_" "${probe[@]:1}" || cut -d'|' -f"$column" <<<"$row"
  done < <(requirements) | sort -u
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    env DEBIAN_FRONTEND=noninteractive "$@"
  else
    sudo -n env DEBIAN_FRONTEND=noninteractive "$@"
  fi
}

install_system_packages() {
  local packages
  mapfile -t packages < <(missing 3)
  [ ${#packages[@]} -gt 0 ] || return 0
  if command -v apt-get >/dev/null && as_root true 2>/dev/null; then
    say "installing with apt: ${packages[*]}"
    as_root apt-get -q update
    as_root apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${packages[@]}" ||
      say "apt could not install all of them"
  fi
  mapfile -t packages < <(missing 3)
  [ ${#packages[@]} -gt 0 ] || return 0
  say "these are missing, and this account cannot install them:"
  if command -v apt-get >/dev/null; then
    say "  sudo apt-get install --no-install-recommends ${packages[*]}"
  elif command -v dnf >/dev/null; then
    say "  sudo dnf install $(missing 4 | paste -sd ' ')"
  elif command -v pacman >/dev/null; then
    say "  sudo pacman -S --needed $(missing 5 | paste -sd ' ')"
  else
    say "  (by their names in Debian) ${packages[*]}"
  fi
  die "install them and run this again"
}

# The packages of pyproject.toml that build the extension (`make build` does that), and, unless "$1" is build, those for
# our purpose. Their versions are those of tools/requirements.lock.
python_packages() {
  "$venv/bin/python" - "${1:-$purpose}" <<'PYTHON'
import re
import sys
import tomllib

with open("pyproject.toml", "rb") as file:
    config = tomllib.load(file)


def expanded(wanted):
    for requirement in wanted:
        if isinstance(requirement, dict):
            yield from expanded(config["dependency-groups"][requirement["include-group"]])
        elif own := re.fullmatch(r"netfold\[(.*)\]", requirement):
            for extra in own[1].split(","):
                yield from expanded(config["project"]["optional-dependencies"][extra])
        else:
            yield requirement


wanted = config["build-system"]["requires"]
if sys.argv[1] != "build":
    wanted += [*config["project"]["dependencies"], *expanded(config["dependency-groups"][sys.argv[1]])]
print("\n".join(dict.fromkeys(wanted)))
PYTHON
}

install_python_packages() {
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "$python is $("$python" --version); Netfold needs Python 3.11 or newer: PYTHON=python3.12 make setup"
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  local packages key stamp="$venv/.netfold-setup"
  packages=$(python_packages)
  key=$({ printf '%s\n' "$packages"; cat tools/requirements.lock; "$venv/bin/python" --version; } | sha256sum)
  grep -qsxF "$purpose $key" "$stamp" && return
  if [[ $purpose == demo || $purpose == test ]] && ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
    pip_install "$(python_packages build)"
    compile &
    if [ "$purpose" = test ]; then
      compile_tests >/dev/null 2>&1 &
      tests_compiler=$!
      trap 'kill "$tests_compiler" 2>/dev/null || true' EXIT
    fi
    if [ "$purpose" = test ] || has_gpu || ! install_cpu_torch; then
      say "installing Python packages into $venv; PyTorch brings its CUDA libraries: once, about 5 GB on disk"
    fi
  fi
  if [[ $purpose == demo || $purpose == test ]]; then
    # pip would compile every module of every package. A training imports a tenth of them: those are compiled here.
    pip_install "$packages" --no-compile
    PYTHONDONTWRITEBYTECODE='' "$venv/bin/python" -c \
      'import matplotlib.pyplot, sklearn.datasets, torch._dynamo, torch.distributed.fsdp, torch.distributed.tensor'
  else
    pip_install "$packages"
  fi
  [ -z "${tests_compiler:-}" ] || kill "$tests_compiler" 2>/dev/null || true  # tools/cpp_tests.sh does the rest
  wait  # `make build` says what is wrong
  printf '%s %s\n' "$purpose" "$key" >>"$stamp"
}

pip_install() {  # PACKAGES [OPTION...]: one package a line
  xargs -d '\n' "$venv/bin/python" -m pip install --disable-pip-version-check "${@:2}" \
    --constraint tools/requirements.lock <<<"$1" >&2 || die "pip could not install the Python packages (see above)"
}

has_gpu() { command -v nvidia-smi >/dev/null || [ -e /proc/driver/nvidia/version ]; }

# PyTorch without CUDA's libraries, a tenth of the download. Only PyTorch's own index has it: where that cannot be
# reached, PyPI's build serves. What PyTorch depends on comes from PyPI in any case.
install_cpu_torch() {
  "$venv/bin/python" -c 'import sys, urllib.request as web; web.urlopen(sys.argv[1], timeout=15).close()' \
    "$torch_index/torch/" 2>/dev/null || return
  say "no NVIDIA GPU is here: installing PyTorch's build for processors into $venv, from $torch_index"
  "$venv/bin/python" -m pip install --disable-pip-version-check --no-compile --no-deps --index-url "$torch_index" \
    --constraint tools/requirements.lock torch >&2
}

# Compiles what `make build` needs, on the cores that pip leaves idle while it unpacks PyTorch: pip uses one. The wheel
# is thrown away, and the compiled files stay in build/python.
compile() {
  local folder
  folder=$(mktemp -d)
  flock .build.lock "$venv/bin/python" -m pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps \
    --wheel-dir "$folder" -C cmake.define.CMAKE_BUILD_TYPE=RelWithDebInfo . >/dev/null 2>&1
  rm -rf "$folder"
}

# In the same time: as much of the build of tools/cpp_tests.sh as one core can.
compile_tests() {
  tools/cpp_tests.sh configure
  exec ninja -C build/test -j 1
}

case $purpose in
  demo | check | dist | site | test) ;;
  *) die "unknown purpose '$purpose': demo, check, dist, site or test" ;;
esac
install_system_packages
install_python_packages
say "ready ($purpose)"
