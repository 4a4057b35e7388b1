"""Two flip-flops for every signal that crosses clocks: no simulation shows a metastable one, so sources are read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from netfold_lab.rtl.paths import SOURCES

MARKED = re.compile(r"\(\* ASYNC_REG = \"TRUE\" \*\) \w+ ([^;]+);")
FILES = [path for path in sorted(SOURCES.rglob("*.sv")) if "ASYNC_REG" in path.read_text()]


def drivers(text: str, name: str) -> set[str]:
    """The values that a signal is assigned, except at reset."""
    found = re.findall(rf"\b{name}\s*(?:<=|=) ([^;]+);", text)
    return {value for value in found if value not in ("'0", "'1", "1'b0")}


def readers(text: str, name: str) -> int:
    """How often a signal is read."""
    return len(re.findall(rf"\b{name}\b(?!\s*<=)", text)) - 1  # its declaration


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_crossing_has_two_flip_flops(path: Path) -> None:
    """Of a marked pair, the first takes a flip-flop or an input, and only the second reads it. Of a marked shift
    register, only the next stage reads the lowest bit."""
    text = re.sub(r"//.*", "", path.read_text())
    marked = [re.sub(r"\[[\d:]+\] ", "", name).strip() for group in MARKED.findall(text) for name in group.split(",")]
    shifted = [name for name in marked if re.search(rf"\b{name}\s*<= {{", text)]
    for name in shifted:
        (value,) = drivers(text, name)
        assert re.fullmatch(rf"{{{name}\[(\d:)?0\], \w+_n?i}}", value), value
        assert re.findall(rf"\b{name}\[(?:\d:)?0\]", text) == re.findall(rf"\b{name}\[[\d:]+\](?=, \w+_n?i}})", text)
        assert not re.search(rf"\b{name}\b(?!\[)(?!\s*<=)", text.partition(";\n\n")[2].partition("assign")[2])
    names = [name for name in marked if name not in shifted]
    firsts = [name for name in names if name.endswith("meta_q")]
    seconds = [name for name in names if name not in firsts]
    assert len(firsts) == len(seconds) and marked
    for first, second in zip(firsts, seconds, strict=True):
        assert drivers(text, second) == {first}
        assert readers(text, first) == 1
        (source,) = drivers(text, first)
        assert re.fullmatch(r"\w+_q|1'b1|\w+_i", source), source


def test_crossings_are_marked() -> None:
    """A module with two clocks and a memory between them marks its synchronisers."""
    texts = {path.stem: path.read_text() for path in SOURCES.rglob("*.sv")}
    two_clocks = {name for name, text in texts.items() if len(set(re.findall(r"posedge (\w+)", text))) > 1}
    assert two_clocks
    assert {path.stem for path in FILES} >= two_clocks | {"reset_sync", "spi_slave"}
