"""The bitstream of a board: its pins, what nextpnr's report says, and the command. The build itself takes many minutes:
`netfold rtl board` runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from netfold_lab.rtl import board, hierarchy
from netfold_lab.rtl.paths import RtlError


def bits_of_top(top: str) -> set[str]:
    """Each bit of each port, as nextpnr names it."""
    (instance,) = hierarchy.elaborate(top, {}).topInstances
    widths = {port.name: port.type.bitWidth for port in instance.body.portList}
    return {name if width == 1 else f"{name}[{bit}]" for name, width in widths.items() for bit in range(width)}


@pytest.mark.parametrize("name", board.BOARDS)
def test_every_pin_of_the_top_has_one_place_and_one_level(name: str) -> None:
    text = (board.PINS / f"{name}.lpf").read_text()
    places = re.findall(r'^LOCATE COMP "(.+)" SITE "(\w+)";$', text, re.MULTILINE)
    levels = re.findall(r'^IOBUF PORT "(.+)" IO_TYPE=\w+', text, re.MULTILINE)
    bits = bits_of_top(board.BOARDS[name].top)
    assert sorted(bit for bit, _ in places) == sorted(levels) == sorted(bits)
    assert len({site for _, site in places}) == len(bits)
    clocks = re.findall(r'^FREQUENCY PORT "(.+)" (\d+) MHZ;$', text, re.MULTILINE)
    assert {port for port, _ in clocks} == {bit for bit in bits if "rx_clk" in bit or "clk100" in bit}
    assert [mhz for port, mhz in clocks if "rx_clk" in port] == ["125", "125"]


def test_a_missed_clock_is_seen_with_its_path() -> None:
    net = "$glbnet$eth_rx_clk_i[1]$TRELLIS_IO_IN"
    path = [
        {"from": {"cell": "u_send.a_q_TRELLIS_FF_Q_DI_LUT4_Z"}, "to": {"cell": "lut"}},
        {"from": {"cell": "lut"}, "to": {"cell": "b_q"}},
    ]
    report = {
        "fmax": {
            net: {"achieved": 124.9, "constraint": 125.0},
            "$glbnet$clk50": {"achieved": 50.0, "constraint": 50.0},
        },
        "critical_paths": [
            {"from": "posedge $glbnet$clk50", "to": f"posedge {net}", "path": []},
            {"from": f"posedge {net}", "to": f"posedge {net}", "path": path},
        ],
        "utilization": {kind: {"used": 1, "available": 2} for kind in board.PARTS},
    }
    missed = {
        "clock": "eth_rx_clk_i[1]",
        "mhz": 124.9,
        "asked_mhz": 125.0,
        "met": False,
        "start": "u_send.a_q",
        "end": "b_q",
    }
    met = {"clock": "clk50", "mhz": 50.0, "asked_mhz": 50.0, "met": True, "start": "", "end": ""}
    assert board.clocks(report) == [met, missed]
    assert board.usage(report)[0] == {"cells": "lut4", "used": 1, "available": 2}


def test_other_parts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RtlError, match="LFE5UM5G-45F, LFE5UM-45F"):
        board.build("versa_ecp5", "LFE5U-85F", 1, tmp_path, print)
    command = [sys.executable, "-m", "netfold.cli", "rtl", "board", "--board", "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "versa_ecp5" in done.stderr
