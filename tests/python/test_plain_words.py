"""The checker of prose: it finds the habits that it is for, in every kind of file, and accepts plain sentences."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from repository import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import plain_words

CONFIG = plain_words.configuration()
UNCLEAR = {
    "Who waits works.": "headless clause",
    "Without a secret: whoever reaches the port.": "headless clause",
    "Loss is rare; what a command cannot write it refuses.": "headless clause",
    "It refuses numbers that are none.": "negation by none",
    "The shape is no BiGraph.": "negation by no",
    "A switch serves all-reduces alone.": "alone for only",
    "The rank waits for somebody, and he stalls.": "a person for a part",
    "The dialect takes the frame.": "private word",
    "Needs CAP_NET_RAW.": "no subject",
    "A node may wait for ever.": "out of use",
    "A b c " + "word " * 36 + "ends.": "one idea a sentence",
}
PLAIN = (
    "The rank that waits does the work.",
    "Which rank waits? The error names it.",
    "What does a worker send?",
    "There is no switch in this job, and it is no longer needed.",
    "A job that runs alone on a core, or is left alone, spins.",
    "The switch supports all-reduce only. See `who.py` and core/frames/dialect.h.",
    "Fig. 8 shows e.g. The ring.",
    "The list is long; " + "each part is short; " * 20 + "all is well.",
)


def found(path: Path) -> list[str]:
    return [rule for _, rule, _ in plain_words.findings(path, CONFIG)]


@pytest.mark.parametrize("sentence", UNCLEAR)
def test_each_habit_is_found(sentence: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Who waits works\n\n{sentence}\n\n```\nwho waits works\n```\n")
    assert len(found(page)) == 1
    assert UNCLEAR[sentence] in found(page)[0]


def test_plain_sentences_are_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("\n\n".join([*PLAIN, " ".join(PLAIN)]) + "\n")
    assert found(page) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "- It is long,\n  and the shape is no\n  BiGraph.\n"),
        ("b.md", "| field | meaning |\n|---|---|\n| `x` | the shape is no BiGraph |\n"),
        ("c.h", "// The file holds a shape\n// that is no BiGraph.\nint a;\n"),
        ("d.cc", 'int a = 1;  // the shape is no BiGraph\nconst char* b = "x";\n'),
        ("e.cc", 'throw wrong("the shape given is no BiGraph");\n'),
        ("k.cc", 'const char* help = R"(Help.\n\nThe shape is no\nBiGraph.\n  is no command\n)";\n'),
        ("f.sv", "// The shape is no BiGraph.\nmodule f;\n"),
        ("g.py", '"""The shape is no\nBiGraph."""\n'),
        ("h.py", '"""A module."""\n\nshape = 1  # the shape is no BiGraph\n'),
        ("i.py", '"""A module."""\n\noption(help="The shape is no BiGraph.")\n'),
        ("l.py", '"""A module."""\n\nraise ValueError(f"the shape {shape!r} is no BiGraph")\n'),
        ("m.py", '"""A module."""\n\nraise ValueError(\n    "the shape of the file "\n    "is no BiGraph"\n)\n'),
        ("n.py", '"""A module.\n\na.py     the file\nbc.py    the shape is no BiGraph\n"""\n'),
    ],
)
def test_every_kind_of_file_is_read(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert [rule.partition(":")[0] for rule in found(path)] == ["negation by no"]


def test_comments_behind_code_are_not_joined(tmp_path: Path) -> None:
    module = tmp_path / "p.py"
    module.write_text('"""A module."""\n\na = 1  # where the shape is\nb = 2  # no BiGraph\n')
    assert found(module) == []


def test_the_folders_that_are_listed_have_no_findings() -> None:
    paths = plain_words.checked(CONFIG)
    assert ROOT / "README.md" in paths
    assert {path: found(path) for path in paths if found(path)} == {}
