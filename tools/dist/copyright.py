"""Writes the file on copyright of the Debian package netfold-switch to standard output: Netfold's licence, and those of
the libraries whose headers are compiled into the program:

copyright.py [linked]

linked: of all libraries, because they are linked into the program (as wheels have it)."""

from __future__ import annotations

import sys

from licenses import HEADERS, of_debian

OWN = """Netfold is under the Apache License, Version 2.0. On Debian systems its text is in
/usr/share/common-licenses/Apache-2.0.

Copyright: the authors of Netfold

The program holds code of these libraries, under their own licences:
"""
COMPILED_IN = ("fmt", "spdlog", "CLI11", "nlohmann-json", "expected", "highway")


OF_GCC = """=== libstdc++ and libgcc of GCC

They are under the GNU General Public License, version 3, whose text is in /usr/share/common-licenses/GPL-3 on Debian
systems, with the GCC Runtime Library Exception, version 3.1, which permits programs of any licence to hold them.

Copyright: Free Software Foundation, Inc.
"""


def main() -> None:
    print(OWN)
    is_linked = sys.argv[1:] == ["linked"]
    for name in HEADERS if is_linked else COMPILED_IN:
        version, text = of_debian(f"/usr/include/{HEADERS[name]}")
        print(f"=== {name} {version}\n\n{text}")
    if is_linked:
        print(OF_GCC)


main()
