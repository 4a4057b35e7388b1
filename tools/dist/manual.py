"""Writes the manual page of netfold-switch from what its --help says, to standard output:

manual.py DATE PROGRAM [ARGUMENT...]
"""

from __future__ import annotations

import re
import subprocess
import sys

HEAD = """.TH NETFOLD-SWITCH 1 "{date}" "{version}" "User Commands"
.SH NAME
netfold\\-switch \\- sum gradients on their way through the network
.SH SYNOPSIS
.B netfold\\-switch
.RI [ option \\ ...]"""
FILES = """.SH FILES
.TP
.I /etc/netfold/switch.toml
Options of the service netfold\\-switch.
.TP
.I /etc/netfold/secret
The secret that workers must know, if the configuration names it."""
OPTION = re.compile(r"  (-\S+(?: \S+)*?(?: \.\.\.)?)(?:  +(\S.*))?")


def escaped(text: str) -> str:
    """Text as roff shows it."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in (".", "'") else text


def options(lines: list[str]) -> list[str]:
    """One entry for each option; a line that begins further right continues the one before."""
    made: list[str] = []
    for line in lines:
        if found := OPTION.fullmatch(line):
            made += [".TP", f".B {escaped(found[1])}", *([escaped(found[2])] if found[2] else [])]
        elif line.strip():
            made.append(escaped(line.strip()))
    return made


def page(text: str, version: str, date: str) -> str:
    """The manual page of this help. Raises ValueError if a part of it is missing."""
    text = text.replace("netfold switch", "netfold-switch")
    parts = re.fullmatch(
        r"(.*)Usage: [^\n]*\n\nOptions:\n(.*?)\n\nExamples:\n(.*?)\n\n(The program .*?)\n*", text, re.S
    )
    if parts is None:
        raise ValueError("manual: the help has not the parts description, Usage, Options, Examples and an end")
    about, of_options, examples, end = (part.rstrip("\n").split("\n") for part in parts.groups())
    *end, exit_status = end
    lines = [HEAD.format(date=date, version=escaped(version)), ".SH DESCRIPTION"]
    lines += [escaped(line) or ".PP" for line in about]
    lines += [".PP", *map(escaped, end), ".SH OPTIONS", *options(of_options)]
    lines += [".SH EXAMPLES", ".nf", *(escaped(line.removeprefix("  ")) for line in examples), ".fi"]
    lines += [".SH EXIT STATUS", escaped(exit_status.removeprefix("Exit status: ")), FILES]
    return "\n".join(lines) + "\n"


def main() -> None:
    date, *program = sys.argv[1:]

    def said(option: str) -> str:
        return subprocess.run([*program, option], capture_output=True, text=True, check=True).stdout.strip()

    print(page(said("--help"), said("--version"), date), end="")


if __name__ == "__main__":
    main()
