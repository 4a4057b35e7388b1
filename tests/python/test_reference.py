"""The generated pages of docs/reference equal the output of tools/reference.py."""

from __future__ import annotations

import sys

import pytest

from repository import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import reference


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_page_is_what_its_source_says(name: str) -> None:
    if name == "settings.md":
        pytest.importorskip("torch")
    if name == "cli.md":
        pytest.importorskip("typer")
    page = reference.FOLDER / name
    assert page.read_text(encoding="utf-8") == reference.PAGES[name](), f"run .venv/bin/python {reference.COMMAND}"


def test_pages_say_what_their_source_says() -> None:
    c = reference.c_interface()
    assert "## nf_all_reduce\n" in c
    assert "## nf_status_name\n" in c
    assert c.count("```c") == c.count("```") / 2
    module = reference.python_module()
    assert "## class SwitchGroup\n" in module
    assert ".all_reduce(" in module
