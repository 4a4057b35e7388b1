"""Collects the licences of everything that a wheel holds beside Netfold, for tools/dist.sh:

    licenses.py FOLDER COMPILER

The texts are those of Debian's packages, whose sources and headers the wheel is made of, and of the Python packages
that take part. (A wheel for another processor holds code of that processor's packages; this machine's have the same
texts.) Where a package's text only names a licence of Debian's collection, that licence follows. README lists
them all. Fails if one is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

# What is linked or included, and a file by which Debian's package is found.
HEADERS = {
    "fmt": "fmt/core.h",
    "spdlog": "spdlog/spdlog.h",
    "CLI11": "CLI/CLI.hpp",
    "libsodium": "sodium.h",
    "nlohmann-json": "nlohmann/json.hpp",
    "cpp-httplib": "httplib.h",
    "expected": "tl/expected.hpp",
    "highway": "hwy/highway.h",
    "isa-l": "isa-l.h",
}
DOCUMENTS = Path("/usr/share/doc")
COMMON = Path("/usr/share/common-licenses")
NAMED = re.compile(r"/usr/share/common-licenses/([A-Za-z][\w.-]*\w)")


def output(*command: str) -> str:
    """The output of a command."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def of_debian(file: str) -> tuple[str, str]:
    """The version of Debian's package that a file belongs to, and its file on copyright."""
    package = output("dpkg-query", "--search", str(Path(file).resolve())).partition(": ")[0]
    version = output("dpkg-query", "--show", "--showformat", "${Version}", package)
    return version, (DOCUMENTS / package.partition(":")[0] / "copyright").read_text(encoding="utf-8")


def of_package(file: str) -> tuple[str, str]:
    """The same, and the licences that the file names."""
    version, text = of_debian(file)
    for name in sorted(set(NAMED.findall(text))):
        text += f"\n\n=== {name}\n\n{(COMMON / name).read_text(encoding='utf-8')}"
    return version, text


def of_python_package(name: str) -> tuple[str, str]:
    """The same of a Python package."""
    found = importlib.metadata.distribution(name)
    texts = [Path(str(file.locate())).read_text() for file in found.files or () if "LICENSE" in file.name.upper()]
    if name == "ziglang":  # also of the C library for which it links
        spec = importlib.util.find_spec(name)
        folder = Path((spec.submodule_search_locations or [""])[0] if spec else "")
        texts = [(folder / file).read_text() for file in ("LICENSE", "lib/libc/glibc/LICENSES")]
    if not texts:
        raise SystemExit(f"licenses: the Python package {name} has no licence")
    return found.version, "\n\n".join(texts)


def main() -> None:
    """Write all of them."""
    folder, compiler = Path(sys.argv[1]), sys.argv[2]
    folder.mkdir(parents=True, exist_ok=True)
    found = {name: of_package(f"/usr/include/{header}") for name, header in HEADERS.items()}
    found["libstdc++"] = of_package(output(compiler, "-print-file-name=libstdc++.a"))
    found["nanobind"] = of_python_package("nanobind")
    found["zig"] = of_python_package("ziglang")
    for name, (_, text) in found.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    listed = "\n".join(f"{name} {version}: {name}.txt" for name, (version, _) in found.items())
    head = "The programs and libraries of this wheel hold code of these, under their own licences:"
    (folder / "README").write_text(f"{head}\n\n{listed}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
