"""Mutation campaigns on the hardware: the operators, the listed mutants, and the command on a small module."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from netfold_lab.rtl import mutants, mutate
from netfold_lab.rtl.combined import MARK, combined
from netfold_lab.rtl.paths import BUILD, RTL

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("  assign x = a && !b;", {"assign x = a || !b;", "assign x = a && b;", "assign x = '0;", "assign x = '1;"}),
        ("  if (a < 4'd3) b <= c;", {"if (a <= 4'd3) b <= c;", "if (a < 4'd4) b <= c;", "if (a < 4'd2) b <= c;",
                                     "if (!(a < 4'd3)) b <= c;", "if (a < 4'd3) ;"}),
        ("  q <= up ? n : m;  // a < b", {"q <= up ? m : n;", ";"}),
        ("  logic [3:0] x;  // declared", set()),
        ("  assign unused = ^{a, b};", set()),
    ],
)  # fmt: skip
def test_operators_change_code_and_nothing_else(line: str, expected: set[str]) -> None:
    assert {changed.strip() for _, changed in mutants.changes(line)} == expected


def test_a_seed_chooses_the_same_mutants_of_every_module() -> None:
    chosen = mutants.choose([], 300, 7)
    assert chosen == mutants.choose([], 300, 7) != mutants.choose([], 300, 8)
    assert len({mutant.key for mutant in chosen}) == 300
    for mutant in chosen:
        text = (RTL / mutant.file).read_text()
        assert mutant.applied(text) != text


SOURCE = """\
  assign x = a && (b - 4'd1 == c);  // a comment, with (
  always_ff @(posedge clk_i) begin
    if (a || !b) q <= up ? n : m;
    else       r <= {a, b & c};
    s[2:0] <= t[a +: 2];
  end
"""


@pytest.mark.parametrize(
    ("line", "operator", "after", "expected"),
    [
        (1, "logic", "  assign x = a || (b - 4'd1 == c);",
         "  assign x = (mutant_pkg::acts == 1 ? (a || (b - 4'd1 == c)) : (a && (b - 4'd1 == c)));"),
        (1, "arithmetic", "  assign x = a && (b + 4'd1 == c);",
         "  assign x = a && ((mutant_pkg::acts == 1 ? (b + 4'd1 == c) : (b - 4'd1 == c)));"),
        (1, "stuck", "  assign x = '0;", "  assign x = (mutant_pkg::acts == 1 ? ('0) : (a && (b - 4'd1 == c)));"),
        (3, "condition", "    if (!(a || !b)) q <= up ? n : m;",
         "    if ((mutant_pkg::acts == 1 ? (!(a || !b)) : (a || !b))) q <= up ? n : m;"),
        (3, "swapped", "    if (a || !b) q <= up ? m : n;",
         "    if (a || !b) q <= (mutant_pkg::acts == 1 ? (up ? m : n) : (up ? n : m));"),
        (3, "dropped", "    if (a || !b) ;", "    if (a || !b) begin if (mutant_pkg::acts != 1) q <= up ? n : m; end"),
        (4, "bits", "    else       r <= {a, b | c};",
         "    else       r <= {a,(mutant_pkg::acts == 1 ? ( b | c) : ( b & c))};"),
        (5, "arithmetic", "    s[2:0] <= t[a -: 2];",
         "    s[2:0] <= (mutant_pkg::acts == 1 ? (t[a -: 2]) : (t[a +: 2]));"),
    ],
)  # fmt: skip
def test_a_mutant_becomes_a_choice_in_the_smallest_expression(
    line: int, operator: str, after: str, expected: str
) -> None:
    mutant = mutants.Mutant("src/x.sv", line, operator, SOURCE.split("\n")[line - 1], after)
    text, numbers = combined(SOURCE, {1: mutant})
    assert numbers == {1}
    assert text.split("\n")[line - 1].rstrip() == expected


def test_choices_may_lie_within_each_other() -> None:
    line = SOURCE.splitlines()[0]
    logic = mutants.Mutant("src/x.sv", 1, "logic", line, "  assign x = a || (b - 4'd1 == c);")
    inner = mutants.Mutant("src/x.sv", 1, "arithmetic", line, "  assign x = a && (b + 4'd1 == c);")
    text, numbers = combined(SOURCE, {4: logic, 9: inner})
    assert numbers == {4, 9}
    assert text.splitlines()[0].rstrip() == (
        "  assign x = (mutant_pkg::acts == 4 ? (a || (b - 4'd1 == c)) : "
        "(a && ((mutant_pkg::acts == 9 ? (b + 4'd1 == c) : (b - 4'd1 == c)))));"
    )


def test_nearly_all_mutants_are_built_together() -> None:
    chosen = dict(enumerate(mutants.choose([], 400, 11), 1))
    placed = 0
    for file in {mutant.file for mutant in chosen.values()}:
        mine = {number: mutant for number, mutant in chosen.items() if mutant.file == file}
        text, numbers = combined((RTL / file).read_text(), mine)
        assert {int(number) for number in MARK.findall(text)} == numbers <= set(mine)
        placed += len(numbers)
    assert placed >= 380


def test_a_function_of_constants_holds_no_choice() -> None:
    """Such mutants are built one by one. The others are still built together."""
    file = "src/common/crc32.sv"
    lines = (RTL / file).read_text().splitlines()

    def mutant(begin: str) -> mutants.Mutant:
        at, line = next((at, line) for at, line in enumerate(lines, 1) if line.lstrip().startswith(begin))
        return mutants.Mutant(file, at, "bits", line, line.replace(" ^ ", " | "))

    in_function, beside = mutant("reached = {"), mutant("assign mixed = ")
    assert mutate.Tree().combine({1: in_function, 2: beside}, {"crc32"}) == {2}


def test_listed_mutants_are_in_the_sources_and_have_tests() -> None:
    listed = mutants.listed()
    assert len({mutant.name for mutant in listed}) == len(listed) >= 13
    assert all(mutate.tests_of(mutant.module, 1) for mutant in listed)


def test_a_campaign_tells_killed_from_survivors_and_continues(tmp_path: Path) -> None:
    out = tmp_path / "campaign.json"
    command = [
        sys.executable,
        "-m",
        "netfold.cli",
        "rtl",
        "mutate",
        "--module=silence",
        "--count=2",
        "--files=1",
        "--json",
        f"--out={out}",
    ]

    def run() -> list[dict[str, Any]]:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
        assert done.returncode in (0, 1) and done.stdout, done.stderr
        results: list[dict[str, Any]] = json.loads(done.stdout)["results"]
        assert (done.returncode == 0) == (results[0]["survived"] + results[0]["untested"] == 0)
        return results

    first = run()
    assert first[0]["mutants"] == 2 and first[0]["killed"] > 0
    assert [row["state"] for row in json.loads(out.read_text())["mutants"]] == [row["state"] for row in first[1:]]
    assert run() == first  # nothing is left to do
    original = (RTL / "src" / "switch" / "silence.sv").read_text()
    texts = [path.read_text() for path in BUILD.glob("mutants/tree-*/rtl/src/switch/silence.sv")]
    assert original in texts  # the copy for single mutants is as before
    assert all(text == original or MARK.search(text) for text in texts)
