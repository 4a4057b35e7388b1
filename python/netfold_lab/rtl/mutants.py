"""Mutants of the hardware's sources: one changed line each, made by operators from the text, or listed by name in
rtl/tests/mutants.toml."""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from netfold_lab.rtl.paths import RTL, RtlError, sources

# Lines that declare, connect a clock, or silence a warning: a change there does not compile, or changes no behaviour.
SKIPPED = re.compile(
    r"^\s*(module|endmodule|package|import|parameter|localparam|typedef|input|output|inout|logic|genvar|function"
    r"|automatic|for\b|`)|unused|posedge|\$bits|\(\* "
)
BINARY = re.compile(r"(?<= )(==|!=|<=|>=|<|>|&&|\|\||\+|-|&|\||\^)(?= )")
SWAPPED = {
    "==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "&&": "||", "||": "&&", "+": "-", "-": "+",
    "&": "|", "|": "&", "^": "|",
}  # fmt: skip
KINDS = {"&&": "logic", "||": "logic", "+": "arithmetic", "-": "arithmetic", "&": "bits", "|": "bits", "^": "bits"}
CONSTANT = re.compile(r"(?<![\w'])(?:(\d+)'([dh])([0-9a-fA-F_]+)|1'b([01])|'([01]))(?![\w'])")
NEGATION = re.compile(r"!(?=[\w(])(?!=)")
CONDITION = re.compile(r"\bif \((.*)\)( begin)?$|\bif \(([^()]*)\) ")
DROPPED = re.compile(r"(^\s*|\) |: )([\w.\[\]:'+* -]+?) <= [^;]*;$")
STUCK = re.compile(r"^(\s*assign [\w.\[\]:+* -]+?\s*= )([^;]+);$")
CHOICE = re.compile(r"\? ([\w.'\[\]]+) : ([\w.'\[\]]+)(?=[;,) ])")


@dataclass(frozen=True)
class Mutant:
    """One change of one file; `file` is relative to rtl/, `line` counts from 1."""

    file: str
    line: int
    operator: str
    before: str  # text of whole lines
    after: str
    name: str = ""  # of a listed one

    @property
    def key(self) -> str:
        """The same for the same change, wherever its line is."""
        return sha256("\n".join((self.file, self.before, self.after, str(self.line))).encode()).hexdigest()[:12]

    @property
    def module(self) -> str:
        """The changed module, or package."""
        return Path(self.file).stem

    def applied(self, text: str) -> str:
        """The file with the change. Raises RtlError if the text that it changes is not there."""
        lines = text.split("\n")
        count = self.before.count("\n") + 1
        if "\n".join(lines[self.line - 1 : self.line - 1 + count]) != self.before:
            raise RtlError(f"{self.file}:{self.line} differs from the line that the mutant changes; make mutants anew")
        return "\n".join([*lines[: self.line - 1], self.after, *lines[self.line - 1 + count :]])


def _code(line: str) -> str:
    return line.partition("//")[0].rstrip()


def _constants(match: re.Match[str]) -> Iterator[str]:
    """Constants beside one: the next higher one, and the next lower one."""
    width, base, digits, bit, fill = match.groups()
    if bit is not None or fill is not None:
        yield match[0][:-1] + ("0" if match[0][-1] == "1" else "1")
        return
    value = int(digits.replace("_", ""), 10 if base == "d" else 16)
    for other in (value + 1, value - 1):
        if 0 <= other < 1 << int(width):
            yield f"{width}'{base}{other:{'x' if base == 'h' else 'd'}}"


def changes(line: str) -> Iterator[tuple[str, str]]:
    """All (operator, changed line) of a line of source."""
    code = _code(line)
    if not code.strip() or SKIPPED.search(code):
        return

    def put(match: re.Match[str], new: str) -> str:
        return code[: match.start()] + new + code[match.end() :]

    for match in BINARY.finditer(code):
        before = code[: match.start()]
        # Outside of parentheses and right sides, <= assigns.
        if match[1] == "<=" and before.count("(") == before.count(")") and not re.search(r"[^<>=!]= |<= |\? ", before):
            continue
        yield KINDS.get(match[1], "comparison"), put(match, SWAPPED[match[1]])
    for match in NEGATION.finditer(code):
        yield "negation", put(match, "")
    for match in CONSTANT.finditer(code):
        for new in _constants(match):
            yield "constant", put(match, new)
    found = CONDITION.search(code)
    condition = found and (found[1] or found[3])
    if found and condition and condition.count("(") == condition.count(")"):
        yield (
            "condition",
            code[: found.start()] + found[0].replace(f"({condition})", f"(!({condition}))", 1) + code[found.end() :],
        )
    found = DROPPED.search(code)
    if found:
        yield "dropped", code[: found.start(2)] + ";"
    found = STUCK.match(code)
    if found:
        yield "stuck", f"{found[1]}'0;"
        yield "stuck", f"{found[1]}'1;"
    for match in CHOICE.finditer(code):
        if match[1] != match[2]:
            yield "swapped", put(match, f"? {match[2]} : {match[1]}")


def all_of(file: str) -> list[Mutant]:
    """Every mutant that the operators make of a file."""
    made = []
    for number, line in enumerate((RTL / file).read_text().split("\n"), 1):
        made += [Mutant(file, number, operator, line, new) for operator, new in changes(line) if new != _code(line)]
    return list({mutant.key: mutant for mutant in made}.values())


def choose(modules: list[str], count: int, seed: int) -> list[Mutant]:
    """`count` mutants in an order that the seed decides, of these modules (default: all), each module in turn. Raises
    RtlError for an unknown module."""
    files = {Path(name).stem: name for name in sources() if not name.endswith("_registers_pkg.sv")}
    unknown = sorted(set(modules) - set(files))
    if unknown:
        raise RtlError(f"there is no module {', '.join(unknown)}; modules: {', '.join(sorted(files))}")
    rng = random.Random(seed)
    pools = []
    for module in sorted(modules or files):
        by_operator: dict[str, list[Mutant]] = {}
        for mutant in all_of(files[module]):
            by_operator.setdefault(mutant.operator, []).append(mutant)
        pool: list[Mutant] = []
        for group in by_operator.values():
            rng.shuffle(group)
        while any(by_operator.values()):
            turn = [group.pop() for group in by_operator.values() if group]
            rng.shuffle(turn)
            pool += turn
        pools.append(pool[::-1])  # each operator in turn: the frequent ones are the easiest to notice
    chosen: list[Mutant] = []
    while len(chosen) < count and any(pools):
        chosen += [pool.pop() for pool in pools if pool][: count - len(chosen)]
    return chosen


def listed() -> list[Mutant]:
    """The mutants of rtl/tests/mutants.toml. Raises RtlError if a text is not in its file exactly once."""
    made = []
    for entry in tomllib.loads((RTL / "tests" / "mutants.toml").read_text())["mutant"]:
        file, before, after = (f"src/{entry['file']}", entry["before"], entry["after"])
        text = (RTL / file).read_text()
        if text.count(before) != 1:
            raise RtlError(
                f"mutants.toml: {entry['name']}: {file} holds the text {text.count(before)} times, not once; "
                "write the text as it is now"
            )
        at = text.index(before)
        first, last = text.rfind("\n", 0, at) + 1, text.find("\n", at + len(before))
        whole = text[first:last]
        line = text.count("\n", 0, first) + 1
        made.append(Mutant(file, line, "listed", whole, whole.replace(before, after), entry["name"]))
    return made
