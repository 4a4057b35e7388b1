#!/usr/bin/env python3
"""Finds sentences that a reader must read twice, in Markdown, comments, docstrings, help texts and messages.

    tools/plain_words.py [PATH ...]    PATH: files to check in place of those that plain_words.toml names

The rules are patterns over single sentences (plain_words.toml). Prints one line for each finding, and exits with 1 if
there is one.
"""

from __future__ import annotations

import ast
import fnmatch
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "tools" / "plain_words.toml"
CODE = "\u2423"  # stands for code between backticks
MESSAGE_WORDS_MIN = 4  # a string literal with fewer words is a name, not a message
ABBREVIATIONS = re.compile(r"\b(?:e\.g|i\.e|etc|cf|vs|Fig|Sec|No|et al)\.")


@dataclass(frozen=True)
class Rule:
    """A pattern that a plain sentence does not match, and what to write in its place."""

    name: str
    pattern: re.Pattern[str]
    advice: str
    suffixes: tuple[str, ...]  # of the files that it is for; empty: all


@dataclass(frozen=True)
class Config:
    """plain_words.toml."""

    rules: tuple[Rule, ...]
    sentence_words_max: int
    paths: tuple[str, ...]
    leave_out: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """Text that belongs together: a paragraph, a list item, a table cell, a comment. `line` is where it begins."""

    line: int
    text: str
    is_prose: bool = True  # False: a cell or a label, which needs no subject


def configuration() -> Config:
    """Read plain_words.toml."""
    table = tomllib.loads(CONFIG.read_text(encoding="utf-8"))
    rules = tuple(
        Rule(each["name"], re.compile(each["pattern"]), each["advice"], tuple(each.get("suffixes", ())))
        for each in table["rule"]
    )
    return Config(rules, table["sentence_words_max"], tuple(table["paths"]), tuple(table["leave_out"]))


def markdown(text: str) -> Iterator[Block]:
    """Paragraphs, list items and table cells; no headings, no code."""
    held: list[str] = []
    begin, in_code = 0, False

    def flush() -> Iterator[Block]:
        if held:
            yield Block(begin, _plain(" ".join(held)))
            held.clear()

    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("```"):
            yield from flush()
            in_code = not in_code
        elif in_code:
            continue
        elif stripped.startswith("|"):
            yield from flush()
            for cell in _plain(stripped.replace("\\|", "")).strip("|").split("|"):
                yield Block(number, cell.strip(), is_prose=False)
        elif not stripped or stripped.startswith(("#", "![", "<")) or line.startswith("    "):
            yield from flush()
        else:
            item = re.match(r"(?:[-*]|\d+\.) +(.*)", stripped)
            if item:
                yield from flush()
            if not held:
                begin = number
            held.append(item[1] if item else stripped)
    yield from flush()


def _plain(text: str) -> str:
    """Without code, names of files, addresses and emphasis."""
    text = re.sub(r"`[^`]*`", CODE, text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"[\w/.-]+\.(?:h|cc|c|py|sv|md|toml|txt)\b", CODE, text)
    return re.sub(r"\*\*|(?<!\w)\*(?=\w)|(?<=\w)\*(?!\w)", "", text)


def slashes(text: str) -> Iterator[Block]:
    """Comments of C++ and SystemVerilog, those on lines of their own joined, and the messages in string literals."""
    for raw in re.finditer(r'R"\w*\((.*?)\)\w*"', text, re.S):
        for paragraph in raw[1].split("\n\n"):
            told = [line.strip() for line in paragraph.splitlines() if not re.match(r"  \S", line)]
            yield Block(text.count("\n", 0, raw.start()) + 1, " ".join(told), is_prose=False)
    held: list[str] = []
    begin = 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        comment = re.match(r"\s*//+ ?(.*)", line)
        if comment and comment[1].strip() and not re.match(r"\s{2,}|NOLINT|verilator|clang-format|=", comment[1]):
            if comment[1].startswith("- ") and held:
                yield Block(begin, _plain(" ".join(held)))
                held = []
            begin = begin if held else number
            held.append(comment[1].strip())
            continue
        if held:
            yield Block(begin, _plain(" ".join(held)))
            held = []
        trailing = re.search(r"(?<!:)// (.*)", line)
        if trailing and not comment:
            yield Block(number, _plain(trailing[1]), is_prose=False)
        for literal in re.findall(r'"((?:[^"\\]|\\.)*)"', line.partition(" // ")[0]):
            if len(re.findall(r"[A-Za-z]{2,}", literal)) >= MESSAGE_WORDS_MIN:
                yield Block(number, literal, is_prose=False)


def python(text: str) -> Iterator[Block]:
    """Docstrings by paragraph, comments, and string literals that are messages: errors, help texts, cells of tables."""
    tree = ast.parse(text)
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            said = ast.get_docstring(node, clean=True)
            if said:
                docstrings.add(id(node.body[0].value))  # type: ignore[attr-defined]
                yield from _docstring(node.body[0].lineno, said)
    yield from _messages(tree, docstrings)
    held: list[str] = []
    begin = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#!|# (?:noqa|type:|fmt:|ruff|pragma|mypy)", token.string):
            number = token.start[0]
            is_trailing = not token.line.lstrip().startswith("#")
            if held and (is_trailing or number != last + 1):
                yield Block(begin, _plain(" ".join(held)), is_prose=False)
                held = []
            begin = begin if held else number
            held.append(token.string.lstrip("# "))
            last = 0 if is_trailing else number  # a comment below another line's begins anew
    if held:
        yield Block(begin, _plain(" ".join(held)), is_prose=False)


def _docstring(line: int, text: str) -> Iterator[Block]:
    """Paragraphs as prose; of lists such as `name   meaning`, each meaning as a label."""
    for paragraph in re.split(r"\n\s*\n", text):
        if re.search(r"\S {2,}\S", paragraph):
            for meaning in re.findall(r"^ *\S.*? {2,}(\S.*)$", paragraph, re.M):
                yield Block(line, _plain(meaning), is_prose=False)
        elif not re.search(r"^ {2,}", paragraph, re.M):
            yield Block(line, _plain(" ".join(paragraph.split())))


def _messages(tree: ast.AST, docstrings: set[int]) -> Iterator[Block]:
    """String literals of enough words, without what f-strings insert; no docstrings."""
    inside = docstrings | {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else CODE for part in node.values]
            literal = "".join(str(part) for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            literal = node.value
        else:
            continue
        for paragraph in literal.split("\n"):
            if len(re.findall(r"[A-Za-z]{2,}", paragraph)) >= MESSAGE_WORDS_MIN:
                yield Block(node.lineno, _plain(paragraph.strip()), is_prose=False)


READERS = {".md": markdown, ".py": python}
READERS |= dict.fromkeys((".h", ".c", ".cc", ".sv"), slashes)


def sentences(block: Block) -> Iterator[str]:
    """The sentences of a block."""
    text = ABBREVIATIONS.sub(lambda found: found[0].replace(".", "\u2024"), block.text)
    for sentence in re.split(r"(?<=[.?!])[\")]* +(?=[A-Z\u2423\"(\d]|\w+[_(<])", text):
        if sentence.strip():
            yield sentence.strip()


def findings(path: Path, config: Config) -> Iterator[tuple[int, str, str]]:
    """Line, rule and sentence of each finding in a file."""
    rules = [rule for rule in config.rules if not rule.suffixes or path.suffix in rule.suffixes]
    for block in READERS[path.suffix](path.read_text(encoding="utf-8")):
        for sentence in sentences(block):
            for rule in rules:
                needs_prose = rule.pattern.pattern.startswith(("^", "(?:^"))
                if (block.is_prose or not needs_prose) and rule.pattern.search(sentence):
                    yield block.line, f"{rule.name}: {rule.advice}", sentence
            words = max(len(re.findall(r"\S*[A-Za-z]{2}\S*", part)) for part in sentence.split(";"))
            if words > config.sentence_words_max:
                yield block.line, f"{words} words: one idea a sentence", sentence


def checked(config: Config) -> list[Path]:
    """The files that the configuration names, among those under version control or about to be."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    wanted = [
        name
        for name in names
        if Path(name).suffix in READERS
        and any(fnmatch.fnmatch(name, each) for each in config.paths)
        and not any(fnmatch.fnmatch(name, each) for each in config.leave_out)
    ]
    return [ROOT / name for name in sorted(set(wanted)) if (ROOT / name).is_file()]


def main(names: list[str]) -> int:
    """Print the findings; returns the exit status."""
    config = configuration()
    count = 0
    for path in [Path(name).resolve() for name in names] or checked(config):
        for line, rule, sentence in findings(path, config):
            count += 1
            print(f"{path.relative_to(ROOT)}:{line}: {rule}\n    {sentence}")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
