"""The documents as a whole: every link and anchor has a target, and a reader can reach every page."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from repository import ROOT, files, name_of

PAGES = files(".md")
STARTS = (ROOT / "README.md", ROOT / "docs" / "README.md")
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
DECISIONS = ROOT / "docs" / "decisions"
LINK = re.compile(r"\]\(([^)\s]+)[^)]*\)|(?:src|href)=\"([^\"]+)\"")


def without_code(text: str) -> str:
    """The page without its blocks and its quoted code: brackets in them are not links, and # is not a heading."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^ *```.*?^ *```", "", text, flags=re.S | re.M))


def links(path: Path) -> list[tuple[str, str]]:
    """Relative links of a page as (path, anchor); either may be empty."""
    targets = ["".join(pair) for pair in LINK.findall(without_code(path.read_text()))]
    local = [target for target in targets if "://" not in target and not target.startswith("mailto:")]
    return [(target.partition("#")[0], target.partition("#")[2]) for target in local]


@cache
def anchors(path: Path) -> set[str]:
    """The anchors that a page's headings get, as GitHub makes them."""
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.S | re.M)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        count = sum(1 for each in found if re.fullmatch(re.escape(slug) + r"(-\d+)?", each))
        found.add(f"{slug}-{count}" if count else slug)
    return found


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    wrong = []
    for target, anchor in links(path):
        page = (path.parent / target).resolve() if target else path
        if not page.exists() or (anchor and page.suffix == ".md" and anchor not in anchors(page)):
            wrong.append(f"{target}#{anchor}")
    assert wrong == []


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_a_page_is_text(path: Path) -> None:
    others = {sign for sign in path.read_text() if sign != "\n" and not sign.isprintable()}
    assert not others, f"{name_of(path)} holds control characters: {others}"


def test_a_reader_can_reach_every_page() -> None:
    reached, todo = set(STARTS), list(STARTS)
    while todo:
        page = todo.pop()
        for target, _ in links(page):
            linked = (page.parent / target).resolve()
            if linked.suffix == ".md" and linked not in reached and linked.exists():
                reached.add(linked)
                todo.append(linked)
    assert [name_of(path) for path in PAGES if path not in reached] == []


def test_pictures_are_shown_somewhere() -> None:
    shown = {(page.parent / target).resolve() for page in PAGES for target, _ in links(page) if target}
    assert [name_of(path) for path in files(".png", ".svg") if path not in shown] == []


def test_the_glossary_is_sorted_and_the_readme_links_it() -> None:
    terms = re.findall(r"^## (.+)$", GLOSSARY.read_text(), re.M)
    assert terms == sorted(set(terms), key=str.casefold)
    assert {(ROOT / "README.md").parent / target for target, _ in links(ROOT / "README.md")} >= {GLOSSARY}


def test_decisions_are_numbered_and_have_three_parts() -> None:
    pages = sorted(DECISIONS.glob("0*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        text = page.read_text()
        assert re.match(rf"# {int(page.name[:4])}\. \S", text), page.name
        assert re.findall(r"^## (.+)$", text, re.M) == ["Context", "Decision", "Consequence"], page.name


def test_documents_that_sources_name_exist() -> None:
    named = re.compile(r"(?<![\w/.])docs/[\w./-]+\.(?:md|png|svg)\b")
    gone = {
        f"{name_of(path)}: {name}"
        for path in files(".h", ".cc", ".py", ".sv", ".md", ".toml", ".sh")
        for name in named.findall(path.read_text(encoding="utf-8"))
        if not (ROOT / name).exists()
    }
    assert gone == set()


def blocks(path: Path, language: str) -> list[str]:
    """The blocks of a page in this language ("" of a shell), without the indentation of a list."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", path.read_text(), re.S | re.M)
    return [re.sub(rf"^{indentation}", "", text, flags=re.M) for indentation, text in found]


SIGNATURES = ROOT / "docs" / "reference" / "python-module.md"  # generated, and no programs


@pytest.mark.parametrize("path", [path for path in PAGES if blocks(path, "python") and path != SIGNATURES], ids=name_of)
def test_python_in_a_page_is_python_and_imports_what_there_is(path: Path) -> None:
    for text in blocks(path, "python"):
        code = re.sub(r"^(def .*|class .*|with .*): *\.\.\.$", r"\1: pass", text, flags=re.M)
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("netfold", "netfold_lab"):
                gone = [alias.name for alias in node.names if not is_there(f"{node.module}.{alias.name}")]
                assert gone == [], f"{node.module} has no {gone}"
            if isinstance(node, ast.Attribute) and (named := dotted(node)).startswith("netfold."):
                assert is_there(named), f"there is no {named}"


def dotted(node: ast.expr) -> str:
    """netfold.torch.Options of its node; "" of another expression."""
    if isinstance(node, ast.Name):
        return node.id
    owner = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{owner}.{node.attr}" if owner and isinstance(node, ast.Attribute) else ""


def is_there(named: str) -> bool:
    """Whether a dotted name of our packages leads to something."""
    words = named.split(".")
    found: object = importlib.import_module(words[0])
    for depth, word in enumerate(words[1:], 2):
        if not hasattr(found, word):
            try:
                importlib.import_module(".".join(words[:depth]))
            except ModuleNotFoundError:
                return False
        found = getattr(found, word)
    return True


@pytest.mark.parametrize("path", [path for path in PAGES if blocks(path, "yaml")], ids=name_of)
def test_yaml_in_a_page_is_yaml(path: Path) -> None:
    for text in blocks(path, "yaml"):
        assert yaml.safe_load(text) is not None


def test_variables_that_pages_name_are_read_somewhere() -> None:
    variable = re.compile(r"\bNETFOLD_[A-Z0-9_]+\b")
    sources = files(".py", ".cc", ".h", ".c", ".sh", ".txt", ".toml", ".yaml", ".service", "Makefile")
    known = {name for path in sources for name in variable.findall(path.read_text(encoding="utf-8"))}
    named = {f"{name} in {name_of(page)}" for page in PAGES for name in variable.findall(page.read_text())}
    assert len(known) > 30
    assert {each for each in named if each.split()[0] not in known} == set()


def test_shell_commands_name_targets_and_files_that_there_are() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    wrong = set()
    for page in PAGES:
        commands = [line.split("   ")[0] for text in blocks(page, "") for line in text.splitlines()]
        commands += re.findall(r"`([^`\n]+)`", page.read_text())
        for command in commands:
            called = re.findall(r"(?:^|[;&] )(?:\w+=\S+ )*make ([a-z-]+)", command)
            wrong |= {f"{name_of(page)}: make {target}" for target in called if target not in targets}
            paths = re.findall(r"(?:^| )((?:examples|packaging|tools|tests|rtl|docs|python)/[\w./-]+)", command)
            wrong |= {f"{name_of(page)}: {name}" for name in paths if not (ROOT / name).exists()}
    assert wrong == set()
