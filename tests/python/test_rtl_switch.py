"""The switch in hardware, in short: random frames, sums and loss beside the software's switch, line rate, latencies,
what leaves as scapy and tshark see it, and its place between interfaces. The campaigns behind it are `netfold rtl
switch test`, `bench` and `train`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from netfold_lab.bench import roce
from netfold_lab.rtl import simulation, switch_bench, switch_report
from roce_frames import ACKNOWLEDGE, IPV4, ROCE, frames_marked_by_tshark, read

pytestmark = pytest.mark.timeout(900)
SHAPE = simulation.SwitchShape(ports=4, has_crossings=False)
MESSAGE = switch_bench.MESSAGE_PACKETS
BOTH = pytest.mark.parametrize("version", switch_bench.VERSIONS)


@pytest.fixture(scope="module")
def built() -> simulation.SwitchShape:
    """The switch of four ports, with its engine."""
    simulation.build(SHAPE, ("netfold-rtl-switch", "_rtl_switch"))
    return SHAPE


def _silent(_: str) -> None:
    pass


@pytest.mark.parametrize(
    ("wire", "version"),
    [("fp32", 1), ("int32", 1), ("bfp", 1), ("fp16", 1), ("fp32", 2), ("bfp", 2), ("fp16", 2), ("bf16", 2)],
)
def test_random_frames_have_the_software_s_fate(built: simulation.SwitchShape, wire: str, version: int) -> None:
    found = switch_bench.mixtures(built, 12, 300, 1, wire, version)
    assert found["differences"] == 0, (found["seeds"], found["examples"], found["verdicts"])
    wanted = ["kept", "folded", "answered", "waiting", "icrc", "header", "order", "psn", "spoofed", "busy"]
    for verdict in [*wanted, *(["rank"] if version == 2 else [])]:
        hardware, software = found["verdicts"][verdict]
        assert hardware == software > 0, verdict


@pytest.mark.parametrize(
    ("wire", "version"), [("fp32", 1), ("int32", 1), ("bfp", 1), ("bf16", 1), ("fp32", 2), ("fp16", 2)]
)
def test_sums_at_line_rate_have_the_software_s_bits(built: simulation.SwitchShape, wire: str, version: int) -> None:
    found = switch_bench.sums(built, wire, 2 * MESSAGE * built.ports, wire not in ("int32", "bfp"), 1, version)
    assert (found["differences"], found["underruns"]) == (0, 0), found["examples"]
    assert found["sums"] >= 2 * MESSAGE * built.ports


@pytest.mark.parametrize(("wire", "version"), [("fp32", 1), ("bfp", 1), ("bf16", 1), ("int32", 2), ("bfp", 2)])
def test_one_way_messages_at_line_rate_have_the_software_s_bits(
    built: simulation.SwitchShape, wire: str, version: int
) -> None:
    options = [f"--format={wire}", f"--version={version}", "--one-way", "--messages=8", "--plain-every=7", "--wild"]
    found = simulation.run(built, "scene", *options, f"--repeat-every={switch_bench.REPEAT_EVERY}")
    assert (found["differences"], found["underruns"], found["sums_lost"]) == (0, 0, 0), found["comparison"]["examples"]
    assert found["comparison"]["sums"] >= 8 * MESSAGE * built.ports
    assert not {"room", "shape", "header", "mismatch"} & set(found["verdicts"]), found["verdicts"]


@pytest.mark.parametrize(("wire", "version"), [("fp32", 1), ("fp16", 1), ("fp32", 2), ("bf16", 2)])
def test_what_is_lost_is_asked_for_and_answered(built: simulation.SwitchShape, wire: str, version: int) -> None:
    found = switch_bench.losses(built, wire, 2, 0.05, 1, version=version)
    assert found["differences"] == 0, found
    assert found["resent"] > 0 and found["verdicts"]["answered"] > 0 and found["bad_icrcs"] == 0, found


def test_who_is_paused_in_time_loses_nothing(built: simulation.SwitchShape) -> None:
    found = switch_bench.losses(built, "fp32", 2, 0.02, 1, stall=0.05)
    assert found["differences"] == 0 and found["pauses"] > 0, found
    found = simulation.run(built, "scene", "--messages=2", "--repeat-every=5", "--pause", "--unacknowledged")
    kept = found["verdicts"]["answered"][0]
    assert kept == found["repeats"]["count"] > 0.1 * found["packets"] * built.ports, found
    assert "room" not in found["verdicts"] and found["sums_lost"] == found["unanswered"] == 0, found
    assert found["pauses"] > 0 and found["differences"] == 0, found


@pytest.mark.parametrize(
    ("wire", "plain_every", "version"),
    [("fp32", 0, 1), ("fp32", 1, 1), ("bfp", 0, 1), ("fp16", 0, 1), ("fp32", 0, 2), ("fp32", 1, 2), ("bf16", 1, 2)],
)
def test_ports_at_line_rate_leave_no_bubbles(
    built: simulation.SwitchShape, wire: str, plain_every: int, version: int
) -> None:
    found = switch_bench.line_rate(built, wire, 4 * MESSAGE, plain_every, _silent, version)
    assert (found["differences"], found["drops"], found["underruns"], found["pauses"]) == (0, 0, 0, 0), found
    assert found["share_of_line"] > 0.999, found


@BOTH
def test_latencies_are_below_what_was_asked(built: simulation.SwitchShape, version: int) -> None:
    for row in switch_bench.latencies(built, 2, 0.1, _silent, version):
        assert row["count"] > 10, row
        assert row["median_ns"] <= row["asked_ns"], row


@BOTH
def test_scapy_and_tshark_read_what_leaves(built: simulation.SwitchShape, tmp_path: Path, version: int) -> None:
    from scapy.utils import RawPcapReader

    simulation.run(
        built, "scene", "--messages=1", "--plain-every=9", f"--pcap={tmp_path / 'out'}", f"--version={version}"
    )
    ether_type = {1: ROCE, 2: IPV4}[version]
    kinds: dict[str, int] = {}
    for capture in sorted(tmp_path.glob("out.*.pcap")):
        for frame, _ in RawPcapReader(str(capture)):
            if int.from_bytes(frame[12:14], "big") != ether_type:
                continue
            found = read(frame)
            kind = "acknowledgement" if found.opcode == ACKNOWLEDGE else "sum"
            assert kind == "acknowledgement" or found.is_sum
            kinds[kind] = kinds.get(kind, 0) + 1
        if shutil.which("tshark") is not None:
            assert frames_marked_by_tshark(capture) == ""
    assert kinds == {"sum": MESSAGE * built.ports, "acknowledgement": built.ports}


@pytest.mark.root
@pytest.mark.namespaces
@BOTH
def test_it_stands_between_interfaces(built: simulation.SwitchShape, version: int) -> None:
    options: dict[str, Any] = {"workers": 4, "size_bytes": 1 << 17, "loss": 0.01, "window": 16, "repeat": 1}
    plan = roce.RoceSettings(**options, engine="rtl", version=version)
    entry = roce.measure(plan, _silent)
    assert entry["ranks_with_wrong_bits"] == 0
    assert entry["switch_counters"]["roce_folded"] >= 2 * 128
    assert entry["switch_counters"]["cycles_per_s"] > 0


@pytest.mark.root
@pytest.mark.namespaces
@pytest.mark.parametrize(
    ("collective", "version"), [("reduce-scatter", 2), ("reduce-scatter", 1), ("all-gather", 2), ("broadcast", 1)]
)
def test_collectives_pass_it_one_way(built: simulation.SwitchShape, collective: str, version: int) -> None:
    options: dict[str, Any] = {"workers": 4, "size_bytes": 1 << 17, "loss": 0.01, "window": 16, "repeat": 1}
    entry = roce.measure(roce.RoceSettings(**options, engine="rtl", version=version, collective=collective), _silent)
    assert entry["ranks_with_wrong_bits"] == 0
    counted = entry["switch_counters"]
    assert counted["roce_folded"] >= 2 * 128
    assert not {"roce_drop_header", "roce_drop_shape", "roce_drop_mismatch"} & set(counted), counted


def test_parts_add_up_to_the_switch() -> None:
    small, large = (switch_report.units(ports) for ports in (2, 4))
    queues = [sum(n for unit, n in units.items() if unit.module == "frame_queue") for units in (small, large)]
    assert queues == [2 * 1, 4 * 3]
    assert all(unit.key != other.key for unit in large for other in large if unit != other)


def _netfold(*words: str) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).parent / "netfold", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=os.environ)


def test_the_command(built: simulation.SwitchShape) -> None:
    options = ["--runs", "0", "--frames", "0", "--messages", "1", "--ports", "4", "--json"]
    done = _netfold("rtl", "switch", "test", *options)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert all(result["differences"] == 0 for result in results)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rtl", "switch", "bench", "--workers", "1"], "2 to 8 workers"),
        (["rtl", "switch", "report", "--ports", "17"], "2 to 16 ports"),
        (["switch", "--engine", "rtl", "--port", "lo"], "two ports"),
        (["switch", "--engine", "rtl", "--port", "none0", "--port", "none1"], "none0"),
    ],
)
def test_mistakes_are_told(built: simulation.SwitchShape, words: list[str], said: str) -> None:
    done: Any = _netfold(*words)
    assert done.returncode != 0
    assert said in done.stderr
