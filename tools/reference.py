#!/usr/bin/env python3
"""Writes the pages of docs/reference that follow from sources: settings, command lines, metrics and the C interface.

    .venv/bin/python tools/reference.py        writes those that changed

tests/python/test_reference.py compares the pages with what this program would write.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"
HEADER = ROOT / "core" / "include" / "netfold.h"
STUB = ROOT / "python" / "netfold" / "_core.pyi"
COMMAND = "tools/reference.py"
START_TIMEOUT_S = 20


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    columns = list(head)
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return lines + [
        "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |" for row in rows
    ]


def settings() -> str:
    """The settings of the PyTorch backend. Needs torch."""
    from netfold.torch.settings import TABLE

    def shown(value: Any) -> str:
        if value in ("", None, (), (0, 0)):
            return ""
        if isinstance(value, bool):
            return "`yes`" if value else "`no`"
        return f"`{','.join(map(str, value)) if isinstance(value, tuple) else value}`"

    rows = [(f"`{one.variable}`", f"`{one.name}`", shown(one.default), one.meaning) for one in TABLE]
    return _page(
        "Settings of the PyTorch backend",
        "python/netfold/torch/settings.py",
        [
            "Set the variable in the environment, or the option in `netfold.torch.Options`. An option overrides a",
            "variable. [The PyTorch backend](pytorch.md#notes-on-settings) has notes on some of them.",
            "",
            *_table(("variable", "option", "default", "meaning"), rows),
        ],
    )


def command_lines() -> str:
    """Every command of `netfold` with its options."""
    from netfold import cli, native
    from netfold.cli import configure, doctor, mpi, nccl, top, up, why

    lines: list[str] = []
    parsers = {"doctor": doctor, "top": top, "why": why, "up": up, "configure": configure, "mpi": mpi, "nccl": nccl}
    programs = {"switch": native.SWITCH, "agent": native.AGENT}
    for name in cli.COMMANDS:
        if name in programs:
            lines += ["", f"## netfold {name}", "```", _help_of(native.find(programs[name])), "```"]
        elif name in parsers:
            lines += _of_argparse(name, parsers[name].parser())
        else:
            lines += _of_typer(name)

    start = "`netfold COMMAND --help` prints the same text. Commands in order of `netfold --help`."
    return _page("Command lines", "the programs themselves", [start, *lines])


def _of_argparse(name: str, parser: argparse.ArgumentParser) -> list[str]:
    rows = []
    for action in parser._actions:
        if action.dest == "help":
            continue
        words = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        default = "" if action.default in (None, False, argparse.SUPPRESS, []) else f"`{action.default}`"
        rows.append((f"`{words}`", default, (action.help or "") % {**vars(action), "prog": parser.prog}))
    table = ["", *_table(("option", "default", "meaning"), rows)] if rows else []
    return ["", f"## netfold {name}", parser.description or "", *table]


def _of_typer(name: str) -> list[str]:
    import typer

    from netfold_lab.cli import program
    from netfold_lab.cli.help import commands

    app = program(name)
    made: Any = typer.main.get_command(app)
    lines = []
    for words in dict.fromkeys(words for words, _ in commands(app)):  # a group may be registered twice
        command = made
        for word in words.split():
            command = command.commands[word]
        rows = []
        for param in command.params:
            if getattr(param, "hidden", False):
                continue
            option = param.param_type_name == "option"
            label = ", ".join([*param.opts, *param.secondary_opts]) if option else (param.name or "").upper()
            default = param.default
            is_shown = not (callable(default) or default is None or default is False or default in ("", (), []))
            known = f"`{default}`" if is_shown else ""
            rows.append((f"`{label}`", known, param.help or ""))
        table = ["", *_table(("option", "default", "meaning"), rows)] if rows else []
        text = re.sub(r"\n\n", "\n\n", command.help or "").replace("\b", "").strip()
        lines += ["", f"{'##' if words == name else '###'} netfold {words}", text, *table]
    return lines


def metrics() -> str:
    """The values that a switch serves at /metrics, read from one with a job of one worker."""
    from netfold import _core, native

    words = [str(native.find(native.SWITCH)), "--bind", "127.0.0.1", "--port", "0", "--metrics", "127.0.0.1:0"]
    switch = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert switch.stdout is not None
        said = ""
        for line in switch.stdout:
            said += line
            if "listening on" in line:
                break
        url = re.search(r"http://\S+/metrics", said)
        address = re.search(r"listening on (\S+)", said)
        if not (url and address):
            raise RuntimeError(f"the switch did not start: {said}")
        worker = _core.SwitchGroup(address[1], "reference", 1, 0)
        with urllib.request.urlopen(url[0], timeout=START_TIMEOUT_S) as answer:
            text = answer.read().decode()
        worker.close()
    finally:
        switch.terminate()
        switch.wait(START_TIMEOUT_S)
    rows = []
    for name, meaning in re.findall(r"^# HELP (\S+) (.*)$", text, re.M):
        kind = re.search(rf"^# TYPE {name} (\S+)$", text, re.M)
        labels = re.search(rf"^{name}{{([^}}]*)}}", text, re.M)
        names = ", ".join(f"`{label}`" for label in re.findall(r"(\w+)=", labels[1])) if labels else ""
        rows.append((f"`{name}`", kind[1] if kind else "", names, meaning))
    return _page(
        "Metrics of the switch",
        "a running switch",
        [
            "`netfold switch --metrics HOST:PORT` serves these at `/metrics` for Prometheus, and the same values at",
            "`/stats.json`. An [Ethernet switch](ethernet-switch.md#counters) serves the counters of its ports too.",
            "",
            *_table(("metric", "type", "labels", "meaning"), rows),
        ],
    )


def c_interface() -> str:
    """core/include/netfold.h, a section for each declaration."""
    text = HEADER.read_text(encoding="utf-8")
    intro, _, rest = text.partition("#pragma once")
    body = rest.partition("#define NF_API\n#endif\n")[2].partition("#ifdef __cplusplus")[0]
    lines = _prose(intro.splitlines())
    for part in re.split(r"\n\n", body.strip()):
        comments: list[str] = []
        code: list[str] = []
        for line in part.splitlines():
            if line.startswith("//") and code and not code[-1].rstrip().endswith((",", "(")):
                lines += _declaration(comments, code)
                comments, code = [line], []
            elif line.startswith("//"):
                comments.append(line)
            else:
                code.append(line)
        lines += _declaration(comments, code)
    return _page("The C interface", "core/include/netfold.h", lines)


def _declaration(comments: list[str], code: list[str]) -> list[str]:
    joined = " ".join(code)
    name = re.search(
        r"NF_API [^()]*?\b(nf_\w+)\(|\b(?:enum|struct) (nf_\w+)|#define (\w+)|typedef \w+ (nf_\w+);", joined
    )
    head = ["", f"## {next(filter(None, name.groups()))}"] if name else [""]
    return [*head, *_prose(comments), *(["```c", *code, "```"] if code else [])]


def _prose(comments: list[str]) -> list[str]:
    """Comment lines as Markdown: what is indented is code."""
    lines: list[str] = []
    in_code = False
    for comment in comments:
        line = comment.removeprefix("//").removeprefix(" ")
        if line.startswith("  ") != in_code:
            in_code = not in_code
            lines.append("```c" if in_code else "```")
        lines.append(line.strip() if not in_code else line[2:])
    return lines + (["```"] if in_code else [])


def python_module() -> str:
    """The compiled module: its functions and classes, from the stub that the build writes."""
    lines = [
        "The extension module offers the core to Python. The PyTorch backend and the benchmarks use it, and scripts",
        "may use it too.",
        "",
        "- Either `wait` or `next_completion` consumes a ticket, not both. Only `wait` consumes the ticket of an",
        "  operation that was submitted with `awaited=True`.",
        '- `dtype` is "fp32", "fp16", "bf16" or "int32".',
    ]
    for node in ast.parse(STUB.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            lines += ["", f"## {node.name}", *_documented(node)]
        elif isinstance(node, ast.ClassDef):
            lines += ["", f"## class {node.name}", *_paragraphs(ast.get_docstring(node))]
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    lines += ["", *_documented(method, node.name)]
    return _page("The Python module `netfold._core`", "python/netfold/_core.pyi", lines)


def _documented(function: ast.FunctionDef, owner: str = "") -> list[str]:
    arguments = ast.unparse(function.args).removeprefix("self").removeprefix(", ")
    returned = f" -> {ast.unparse(function.returns)}" if function.returns and function.name != "__init__" else ""
    name = owner if function.name == "__init__" else f".{function.name}" if owner else function.name
    shown = "property " + name + returned if _is_property(function) else f"{name}({arguments}){returned}"
    signature = textwrap.wrap(shown, 110, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return ["```python", *signature, "```", *_paragraphs(ast.get_docstring(function))]


def _is_property(function: ast.FunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "property" for each in function.decorator_list)


def _paragraphs(text: str | None) -> list[str]:
    return textwrap.wrap(" ".join((text or "").split()), 118, break_long_words=False, break_on_hyphens=False)


def _help_of(program: Path | None) -> str:
    """The text that a program prints for --help, the same for every user."""
    words = [str(program), "--help"]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    return text.replace(f"@netfold-agent-{os.getuid()}\n", "@netfold-agent-UID\n")


def _page(title: str, source: str, lines: list[str]) -> str:
    page = "\n".join([f"# {title}", "", f"Written by {COMMAND} from {source}.", "", *lines])
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", page)).rstrip() + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings,
    "cli.md": command_lines,
    "metrics.md": metrics,
    "c.md": c_interface,
    "python-module.md": python_module,
}


def main() -> int:
    """Write the pages that changed."""
    for name, make in PAGES.items():
        path, text = FOLDER / name, make()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
