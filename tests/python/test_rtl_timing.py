"""Paths in LUT levels: small circuits with known depths, modules of the switch and the NIC, and the command."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from netfold_lab.rtl import levels, switch_report, timing_closure
from netfold_lab.rtl.design import yosys
from netfold_lab.rtl.paths import RTL, RtlError

pytestmark = pytest.mark.timeout(300)


def mapped(text: str, command: str = "synth_xilinx -family xcup -noiopad -top top") -> levels.Netlist:
    """A Verilog module `top`, mapped to UltraScale+."""
    with tempfile.TemporaryDirectory(prefix=".netfold-test-", dir=RTL) as folder:
        (Path(folder) / "top.sv").write_text(text)
        name = Path(folder).name
        yosys(f"read_verilog -sv {name}/top.sv; {command}; write_json {name}/net.json")
        return levels.Netlist(json.loads((Path(folder) / "net.json").read_text())["modules"]["top"])


def test_levels_of_circuits_with_known_depths() -> None:
    """Between registers of one clock: six inputs are a LUT, a sum is a LUT and a carry chain, a distributed RAM is read
    within a level. Paths of another clock do not count, and ports count apart."""
    netlist = mapped(
        "module top(input a, input b, input [31:0] x, input w, output reg [31:0] s, output reg [7:0] o, output y);"
        "reg [31:0] x_q, y_q; reg [7:0] m [32];"
        "always @(posedge a) begin x_q <= x; y_q <= ~x_q; s <= x_q + y_q; if (w) m[x[4:0]] <= x[7:0]; end "
        "always @(posedge b) o <= {8{^s}}; assign y = ^x[5:0]; endmodule"
    )
    inside = netlist.longest(through_ports=False)
    assert (inside.levels, inside.start.partition("[")[0] in ("x_q", "y_q"), inside.end[:2]) == (2, True, "s[")
    assert netlist.longest(through_ports=True) == levels.LongestPath(1, "port x", "port y")


def test_budgets_are_what_a_clock_allows() -> None:
    assert [timing_closure.design(name, 2).budget for name in timing_closure.DESIGNS] == [10, 8, 8, 5, 5, 6, 6]
    assert timing_closure.budget(100) > timing_closure.budget(200)


@pytest.mark.parametrize(
    ("design", "module", "most"),
    [
        ("switch", "aggregation_output_arbiter", 10),
        ("switch", "mac_table", 10),
        ("switch", "output_arbiter", 10),
        ("switch", "pause_generator", 10),
        ("nic40", "nic_control", 8),
        ("in25", "slice_distributor", 5),
        ("out25", "slice_merger", 5),
        ("in100", "slice_distributor", 6),
        ("out100", "slice_merger", 6),
    ],
)
def test_quick_modules_are_within_their_budget(design: str, module: str, most: int) -> None:
    """yosys is deterministic: a path that grows is a change of the sources."""
    units = [unit for _, unit in timing_closure.chosen([design], 2, [module])]
    assert units
    for unit in units:
        found = timing_closure.lut_levels(unit)
        assert 0 < found["levels"] <= most, found


def test_folds_of_16_bit_floats_are_within_the_budget() -> None:
    """An option that the measured designs do not have."""
    (unit,) = (unit for unit in switch_report.units(2, True) if unit.module == "aggregation_processor")
    found = timing_closure.lut_levels(unit)
    assert 0 < found["levels"] <= 10, found


def test_the_whole_nic_is_within_its_budget() -> None:
    """Paths that run through several modules are whole here only: no module shows them. It takes a minute."""
    ((_, unit),) = timing_closure.chosen(["nic40"], 2, ["netfold_nic"])
    found = timing_closure.lut_levels(unit)
    assert 0 < found["levels"] <= 8, found


def test_an_unknown_module_is_an_error() -> None:
    with pytest.raises(RtlError, match="no module nothing in nic40: bfp_decode"):
        timing_closure.chosen(["nic40"], 2, ["nothing"])


def test_the_command_fails_where_a_path_is_too_long() -> None:
    """ring_plan adds three numbers in one cycle; 322 MHz allows 6 levels."""
    command = [sys.executable, "-m", "netfold.cli", "rtl", "timing", "--design", "nic100", "--no-place", "--json"]
    bad = subprocess.run(
        [*command, "--mhz", "322", "ring_plan"], capture_output=True, text=True, timeout=200, check=False
    )
    assert bad.returncode == 1
    assert not json.loads(bad.stdout)["results"][0]["met"]
