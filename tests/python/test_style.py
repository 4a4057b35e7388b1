"""The style rules that a formatter does not check. A rule that matters is a test (CONTRIBUTING.md)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from repository import ROOT, files, name_of

CODE = files(".h", ".inc", ".cc", ".py", ".lua", ".sh")
TEXT = [*CODE, *files(".md", ".txt", ".toml", ".lock", ".html", ".jinja", "Makefile", ".ci/run")]
LINES_MAX = 600
COLUMNS_MAX = 120
REASON = "Long because:"  # in the first ten lines of a file that has to be longer


def violations(path: Path, pattern: re.Pattern[str]) -> list[str]:
    lines = path.read_text().splitlines()
    return [f"{name_of(path)}:{i}: {line.strip()}" for i, line in enumerate(lines, 1) if pattern.search(line)]


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_a_file_holds_one_idea(path: Path) -> None:
    lines = path.read_text().splitlines()
    has_reason = any(REASON in line for line in lines[:10])
    assert len(lines) <= LINES_MAX or has_reason, f"{len(lines)} lines: find a seam, or say '{REASON} ...' at its top"


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_lines_fit(path: Path) -> None:
    assert violations(path, re.compile(rf"^.{{{COLUMNS_MAX + 1},}}")) == []


@pytest.mark.parametrize("path", TEXT, ids=name_of)
def test_text_is_clean(path: Path) -> None:
    text = path.read_bytes().decode()
    assert "\r" not in text
    assert text == "" or text.endswith("\n"), "no newline at the end"
    assert not text.endswith("\n\n"), "empty lines at the end"
    assert path.name == "Makefile" or "\t" not in text, "a tab"
    assert violations(path, re.compile(r"[ \t]+$")) == []


def test_old_code_is_replaced_not_kept() -> None:
    kept = re.compile(r"(^|[_-])(old|new|orig|backup|copy|legacy|tmp|v\d+)$")
    assert [name_of(path) for path in files() if kept.search(path.name.split(".")[0])] == []


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_what_is_left_undone_has_an_issue(path: Path) -> None:
    words = "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X"))
    assert violations(path, re.compile(rf"\b({words})\b(?!.*#\d+)")) == []


@pytest.mark.parametrize("path", TEXT, ids=name_of)
def test_no_path_of_somebodys_machine(path: Path) -> None:
    folders = "|".join(("work", "root", "home", "Users"))
    assert violations(path, re.compile(rf"(?<![\w.$}}~])/({folders})/")) == []


@pytest.mark.parametrize("path", [path for path in TEXT if path.is_relative_to(ROOT / "tests")], ids=name_of)
def test_no_test_needs_a_file_from_outside(path: Path) -> None:
    outside = "share" + "d/"
    assert violations(path, re.compile(rf"\.\./{outside}|/{outside}(spec|notes|papers)")) == []


@pytest.mark.parametrize("path", files(".h"), ids=name_of)
def test_a_header_says_what_it_is_and_is_read_once(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("// "), "begin with a comment: what idea does this file hold?"
    assert len(re.findall(r"^#pragma once$", text, re.MULTILINE)) == 1


@pytest.mark.parametrize("path", [path for path in files(".py") if path.read_text().strip()], ids=name_of)
def test_a_python_file_says_what_it_is(path: Path) -> None:
    assert re.match(r'(#!.*\n)?r?"""\S', path.read_text()), "begin with a docstring: what idea does this file hold?"


@pytest.mark.parametrize("path", files(".sh", ".ci/run"), ids=name_of)
def test_a_script_stops_at_its_first_failure(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in text
    assert path.stat().st_mode & 0o111, "not executable"
