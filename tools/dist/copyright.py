"""Writes the file on copyright of the Debian package netfold-switch to standard output: Netfold's licence, and those of
the libraries whose headers are compiled into the program."""

from __future__ import annotations

from licenses import HEADERS, of_debian

OWN = """Netfold is under the Apache License, Version 2.0. On Debian systems its text is in
/usr/share/common-licenses/Apache-2.0.

Copyright: the authors of Netfold

The program holds code of the headers of these libraries, under their own licences:
"""
COMPILED_IN = ("fmt", "spdlog", "CLI11", "nlohmann-json", "expected", "highway")


def main() -> None:
    print(OWN)
    for name in COMPILED_IN:
        version, text = of_debian(f"/usr/include/{HEADERS[name]}")
        print(f"=== {name} {version}\n\n{text}")


main()
