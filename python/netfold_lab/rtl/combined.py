"""Many mutants in one copy of the sources: a number that the simulator is given chooses the one that acts. So a design
is built once for all its mutants.

A mutant changes a part of an expression. The smallest expression around it becomes a choice between both, such as
`(mutant_pkg::acts == 7 ? (a - b) : (a + b))`: its width and its sign do not change.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from netfold_lab.rtl.mutants import Mutant

PACKAGE_FILE = "src/common/mutant_pkg.sv"
PACKAGE = """// The number of the mutant that acts; 0: none.
package mutant_pkg;
  function automatic int chosen();
    int number;
    if (!$value$plusargs("mutant=%d", number)) number = 0;
    return number;
  endfunction

  int acts = chosen();
endpackage
"""
MARK = re.compile(r"mutant_pkg::acts [!=]= (\d+)")
COMMENT = re.compile(r"//[^\n]*")
# A statement ends before these words, and begins behind them.
BOUNDARY = re.compile(r";|\b(?:begin(?:\s*:\s*\w+)?|end|endcase|endfunction|generate|else|always_comb)\b")
ASSIGNMENT = re.compile(r"\s*(?:assign\s+|return\s+)?(?:[\w.\[\]:+*' -]+?|\{[^{}]*\})?\s*(?:<=|(?<![=!<>])=(?!=))\s*")
RETURN = re.compile(r"\s*return\s+")
LABEL = re.compile(r"\s*[\w', ]+:(?!:)\s*")
OPENING, CLOSING = "([{", ")]}"


@dataclass
class _Place:
    """A part of a file, and the mutants that change it."""

    start: int
    end: int
    is_statement: bool
    texts: list[tuple[int, str]] = field(default_factory=list)  # number of a mutant, and the part as it makes it


def _changed(mutant: Mutant) -> tuple[int, int, str]:
    """The columns of its line that a mutant changes, and what it writes there."""
    before, after = mutant.before.partition("//")[0].rstrip(), mutant.after
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return start, len(before) - end, after[start : len(after) - end]


def _bracket_around(code: str, at: int) -> int:
    """The place of the bracket that is open at `at`; -1 if a statement begins first."""
    depth = 0
    for place in range(at - 1, -1, -1):
        if code[place] in CLOSING:
            depth += 1
        elif code[place] in OPENING:
            if depth == 0:
                return place
            depth -= 1
        elif code[place] == ";" and depth == 0:
            return -1
    return -1


def _pieces(code: str, start: int) -> list[tuple[int, int]] | None:
    """The parts between commas, inside the bracket at `start`; None if the bracket does not end."""
    depth, begin = 0, start + 1
    pieces: list[tuple[int, int]] = []
    for place in range(start, len(code)):
        if code[place] in OPENING:
            depth += 1
        elif code[place] in CLOSING:
            depth -= 1
            if depth == 0:
                return [*pieces, (begin, place)]
        elif code[place] == "," and depth == 1:
            pieces.append((begin, place))
            begin = place + 1
    return None


def _statement_around(code: str, start: int, end: int) -> tuple[int, int] | None:
    """The right side of the assignment that holds a change outside of brackets."""
    stop = code.find(";", end)
    begin = max((found.end() for found in BOUNDARY.finditer(code, max(0, start - 3000), start)), default=0)
    while True:  # conditions and labels before the assignment
        condition = re.compile(r"\s*(?:if|for|unique case|case)\s*(?=\()").match(code, begin)
        if condition:
            pieces = _pieces(code, condition.end())
            if pieces is None or pieces[-1][1] + 1 > start:
                return None
            begin = pieces[-1][1] + 1
            continue
        found = ASSIGNMENT.match(code, begin, stop) or RETURN.match(code, begin, stop)
        if found and found.end() <= start:
            return found.end(), stop
        label = LABEL.match(code, begin, start)
        if label is None:
            return None
        begin = label.end()


def _expression_around(code: str, start: int, end: int) -> tuple[int, int] | None:
    """The smallest expression that holds a change."""
    at = start
    while True:
        bracket = _bracket_around(code, at)
        if bracket < 0:
            return _statement_around(code, start, end)
        pieces = _pieces(code, bracket)
        piece = next(((a, b) for a, b in pieces or [] if a <= start and end <= b), None)
        if piece is None:
            return None
        text = code[piece[0] : piece[1]]
        named = (
            re.match(r"\s*\w+\s*:(?!:)", text) if code[bracket] == "{" and code[bracket - 1 : bracket] == "'" else None
        )
        if named and piece[0] + named.end() <= start:
            return piece[0] + named.end(), piece[1]
        is_range = code[bracket] == "[" and ":" in text
        if not is_range and not named and text.strip():
            return piece
        at = bracket


def _place_of(code: str, line_start: int, mutant: Mutant) -> tuple[_Place, str] | None:
    """Where a choice must stand for this mutant, and what it is there; None if no expression holds the change."""
    first, last, new = _changed(mutant)
    start, end = line_start + first, line_start + last
    if mutant.operator == "dropped":
        stop = code.find(";", end)
        return (_Place(start, stop + 1, True), "") if stop >= 0 else None
    around = _expression_around(code, start, end)
    if around is None:
        return None
    return _Place(*around, False), code[around[0] : start] + new + code[end : around[1]]


def _written(text: str, start: int, end: int, places: Sequence[_Place]) -> str:
    """The text from start to end with the choices of places in it, which lie beside or within each other."""
    inside = [place for place in places if start <= place.start and place.end <= end]
    made, at = "", start
    for place in sorted(inside, key=lambda one: (one.start, -one.end)):
        if place.start < at:
            continue  # within the one before
        rest = [one for one in inside if one is not place]
        base = _written(text, place.start, place.end, rest)
        if place.is_statement:
            ((number, _),) = place.texts
            base = f"begin if (mutant_pkg::acts != {number}) {base} end"
        else:
            chosen = "".join(f"mutant_pkg::acts == {number} ? ({one}) : " for number, one in place.texts)
            base = f"({chosen}({base}))"
        made += text[at : place.start] + base
        at = place.end
    return made + text[at:end]


def combined(text: str, mutants: dict[int, Mutant]) -> tuple[str, set[int]]:
    """A file with a choice for each of its mutants, by number; and the numbers that have a place in it."""
    code = COMMENT.sub(lambda match: " " * len(match[0]), text)
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    places: list[_Place] = []
    numbers: set[int] = set()
    for number, mutant in mutants.items():
        found = _place_of(code, starts[mutant.line - 1], mutant)
        if found is None:
            continue
        place, new = found
        same = [one for one in places if (one.start, one.end) == (place.start, place.end)]
        crosses = any(
            one.start < place.end and place.start < one.end
            and not (one.start <= place.start and place.end <= one.end)
            and not (place.start <= one.start and one.end <= place.end)
            for one in places
        )  # fmt: skip
        if crosses or (same and place.is_statement):
            continue
        if not same:
            places.append(place)
            same = [place]
        same[0].texts.append((number, new))
        numbers.add(number)
    return _written(code, 0, len(code), places), numbers
