"""The whole switch with fast ports: two ports both ways at line rate, with preamble and gap counted. Frames are
forwarded and folded by all slices, none is dropped; one queue pair by itself gets one slice's share."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge
from slices import MAC_PS, slice_of

import netfold
from benches import chance, simulate
from ethernet import AROUND, FRAME_MAX, FRAME_MIN, Bench
from registers import MAP, OKAY, SLAVE_ERROR, offset, read_at, value_of, write
from roce_frames import MIDDLE, Connection, aggregation_header, elements_of, mac, read

PORTS = 2
WIDTH, SLICES, GBIT = (int(os.environ.get(*each)) for each in (("WIDTH", "512"), ("SLICES", "8"), ("GBIT", "100")))
ALL = 1 << 13 + (SLICES - 1).bit_length()  # the address of a register in all slices
CLEAR_CYCLES = 1100  # the address table and the Aggregation Status Buffer
FCS = 4
LINE_US = 12  # of frames
DROPS = ("DROP_ROOM", "DROP_QUEUE_FULL", "DROP_SUM", "DROP_ICRC", "DAMAGED")


async def begin(dut: Any) -> Bench:
    """A switch with cleared tables that adds floats."""
    bench = Bench(dut, PORTS, chance(), WIDTH // 8, MAC_PS[WIDTH], GBIT)
    await bench.start()
    for _ in range(CLEAR_CYCLES):
        await RisingEdge(dut.clk_i)
    assert await write(dut, "AGG_MODE", 1, ALL) == OKAY
    return bench


async def counted(dut: Any, name: str) -> int:
    """The sum of a counter of all ports and slices; none of them is large."""
    places = [one << 13 | offset(name, port) for port in range(PORTS) for one in range(SLICES)]
    return sum([await read_at(dut, place) for place in places])


async def dropped(dut: Any) -> dict[str, int]:
    """Frames that were dropped, by reason."""
    return {name: count for name in DROPS if (count := await counted(dut, name))}


def conversation(rng: random.Random, one: int, port: int, size: int, is_roce: bool) -> bytes:
    """A frame of this size of the conversation that slice `one` carries, from a port to the other."""
    if is_roce:
        version = rng.choice([1, 2]) if size >= 100 else 2
        ends = Connection(mac(port), mac(1 - port), 0x100 + 2 * one + port, version=version)
        room = size - len(ends.frame(MIDDLE, 0, b""))
        return ends.frame(MIDDLE, rng.getrandbits(24), rng.randbytes(room // 4 * 4)).ljust(size, b"\0")
    left, rights = bytes([2, 0, 0, 0, one, 0]), (bytes([2, 0, 0, 1, one, byte]) for byte in range(256))
    addresses = [left, next(right for right in rights if slice_of(left + right, SLICES) == one)]
    return addresses[1 - port] + addresses[port] + b"\x12\x34" + rng.randbytes(size - 14)


def checked(bench: Bench, sent: list[list[bytes]]) -> list[float]:
    """Every frame has arrived at the other port, unchanged and in the order of its conversation. Returns the time that
    each took, in ns, by the order of its arrival."""
    took: list[tuple[float, float]] = []
    for port in range(PORTS):
        came = bench.ports[1 - port].sent
        assert bench.ports[1 - port].underruns == 0
        assert len(came) == len(sent[port])
        for one in range(SLICES):
            mine = [at for at, frame in enumerate(sent[port]) if slice_of(frame, SLICES) == one]
            theirs = [frame for frame in came if slice_of(frame.frame, SLICES) == one]
            assert [frame.frame for frame in theirs] == [sent[port][at] for at in mine]
            assert not any(frame.is_damaged for frame in theirs)
            took += [
                (frame.time_ns, frame.time_ns - bench.ports[port].began_ns[at])
                for frame, at in zip(theirs, mine, strict=True)
            ]
    return [ns for _, ns in sorted(took)]


SIZES = [64, 65, 128, 512, 1024, 1518, 0]  # with the FCS; 0: random ones


@cocotb.test()
@cocotb.parametrize((("size", "is_roce"), [*((size, False) for size in SIZES), (64, True), (1024, True), (0, True)]))
async def forwards_at_line_rate(dut: Any, size: int, is_roce: bool) -> None:
    """Conversations of all slices in turn."""
    bench = await begin(dut)
    rng = bench.rng
    sent: list[list[bytes]] = [[], []]
    for port in range(PORTS):
        total = at = 0
        while total < LINE_US * GBIT * 125:
            bytes_ = size - FCS if size else rng.choice([FRAME_MIN, FRAME_MAX, rng.randrange(FRAME_MIN, FRAME_MAX + 1)])
            frame = conversation(rng, at % SLICES, port, bytes_, is_roce)
            assert slice_of(frame, SLICES) == at % SLICES
            sent[port].append(frame)
            bench.give(port, frame)
            total += len(frame) + AROUND
            at += 1
    await bench.idle(200_000, quiet=400)
    took = checked(bench, sent)
    # The line was full all the time: a switch that was slower would be ever later.
    quarter = len(took) // 4
    assert not size or max(took[-quarter:]) < max(took[:quarter]) + 50
    dut._log.info(
        "%d frames of %d bytes, RoCE %d: %.0f to %.0f ns; at most %.0f in the first quarter, %.0f in the last",
        len(took), size, is_roce, min(took), max(took), max(took[:quarter]), max(took[-quarter:]),
    )  # fmt: skip


@cocotb.test()
@cocotb.parametrize(version=[1, 2])
async def folds_at_line_rate(dut: Any, version: int) -> None:
    """A job for each slice, two workers at two ports; messages of all jobs, packet by packet in turn, back to back. No
    worker has sent a frame before: the contributions teach each slice where its workers are."""
    bench = await begin(dut)
    rng = bench.rng
    packets, messages = 12, 4
    count = (packets * 1024 - 20) // 4
    jobs = range(1, SLICES + 1)
    shape = (len(jobs), messages, PORTS, count)
    numbers = np.random.default_rng(rng.randrange(1 << 30)).standard_normal(shape, np.float32)
    psn = {(job, r): rng.randrange(1 << 24) for job in jobs for r in range(PORTS)}
    for r in range(PORTS):
        streams: list[list[bytes]] = []
        for index, job in enumerate(jobs):
            pair = 0x101 + 2 * job
            ends = Connection(mac(r), mac(1 - r), pair, r + 1, 2 - r, version)
            frames: list[bytes] = []
            for message in range(messages):
                header = aggregation_header(r, message, 4 * count, job)
                first = (psn[job, r] + message * packets) & 0xFFFFFF
                frames += ends.message(first, header, numbers[index, message, r].tobytes(), message)
            assert {slice_of(frame, SLICES) for frame in frames} == {job % SLICES}
            streams.append(frames)
        for turn in zip(*streams, strict=True):
            for frame in turn:
                bench.give(r, frame)
    await bench.idle(400_000, quiet=600)
    lost = await dropped(dut)
    assert not lost, lost
    for r in range(PORTS):
        port = bench.ports[1 - r]
        assert port.underruns == 0
        by_pair: dict[int, list[Any]] = {}
        for one in port.sent:
            frame = read(one.frame)
            by_pair.setdefault(frame.queue_pair, []).append(frame)
            assert frame.is_sum and not one.is_damaged
        for index, job in enumerate(jobs):
            frames_ = by_pair[0x101 + 2 * job]
            assert [one.psn for one in frames_] == [(psn[job, r] + i) & 0xFFFFFF for i in range(messages * packets)]
            for message in range(messages):
                sums = b"".join(elements_of(frames_[message * packets + i], i) for i in range(packets))
                assert sums == netfold.fold(list(numbers[index, message])).tobytes()
    assert await counted(dut, "SUMS_OUT") == len(jobs) * messages * packets * PORTS
    last_in = max(ns for port in bench.ports for ns in port.began_ns)
    last_out = max(one.time_ns for port in bench.ports for one in port.sent)
    first_out = min(one.time_ns for port in bench.ports for one in port.sent)
    first_in = min(ns for port in bench.ports for ns in port.began_ns)
    dut._log.info(
        "RoCE v%d: %d sums; in for %.0f ns, out for %.0f; the last sum comes %.0f ns after the last contribution",
        version, len(bench.ports[0].sent) * 2, last_in - first_in, last_out - first_out, last_out - last_in,
    )  # fmt: skip


@cocotb.test()
@cocotb.parametrize(size=[64, 1024])
async def one_queue_pair_gets_a_slice(dut: Any, size: int) -> None:
    """All of a line in one queue pair: its slice drops whole frames, which are counted. The others are intact and in
    order."""
    bench = await begin(dut)
    ends = Connection(mac(0), mac(1), 0x107, version=2)
    body = size - FCS - len(ends.frame(MIDDLE, 0, b""))
    # More than all queues on the way hold: a slice of two takes half of the line, one of eight takes an eighth.
    times = 1.5 if SLICES == 8 else 4
    count = int(times * LINE_US * GBIT * 125 / (size + 20))
    sent = [
        ends.frame(MIDDLE, psn, bench.rng.randbytes(body // 4 * 4)).ljust(size - FCS, b"\0") for psn in range(count)
    ]
    for frame in sent:
        bench.give(0, frame)
    await bench.idle(200_000, quiet=400)
    came = [one.frame for one in bench.ports[1].sent]
    assert not any(one.is_damaged for one in bench.ports[1].sent)
    order = {frame: at for at, frame in enumerate(sent)}
    places = [order[frame] for frame in came]
    assert places == sorted(set(places))
    lost = await dropped(dut)
    # Most find no room before the slice. It takes short frames faster than they leave, and drops a few itself.
    assert sum(lost.values()) == len(sent) - len(came) and lost.keys() <= {"DROP_ROOM", "DROP_QUEUE_FULL"}, lost
    assert await value_of(dut, "DROP_ROOM", 0, slice_of(sent[0], SLICES) << 13) == lost["DROP_ROOM"] > 0
    ns = bench.ports[1].sent[-1].time_ns - bench.ports[1].sent[0].time_ns
    dut._log.info(
        "%d of %d frames of %d bytes came, one in %.1f cycles, %.2f Gbit/s of frames without FCS",
        len(came), len(sent), size, ns / 5 / (len(came) - 1), 8 * (len(came) - 1) * len(sent[0]) / ns,
    )  # fmt: skip
    assert len(came) > len(sent) / SLICES


@cocotb.test()
async def reaches_the_registers_of_every_slice(dut: Any) -> None:
    """One slice at a time, or all of them with a write; a read of all is one of the first slice."""
    bench = await begin(dut)
    for one in range(SLICES):
        assert await value_of(dut, "ID", 0, one << 13) == MAP["ID"].reset
        assert await value_of(dut, "AGG_MODE", 0, one << 13) == 1
        assert await write(dut, "AGE_LIMIT", 1000 + one, one << 13) == OKAY
    assert [await value_of(dut, "AGE_LIMIT", 0, one << 13) for one in range(SLICES)] == [
        1000 + i for i in range(SLICES)
    ]
    assert await read_at(dut, ALL | offset("AGE_LIMIT")) == 1000
    assert await write(dut, "AGG_MODE", 2, 1 << 13) == SLAVE_ERROR
    assert await write(dut, "AGG_MODE", 2, ALL) == SLAVE_ERROR
    assert await write(dut, "AGE_LIMIT", 77, ALL | 1 << 13) == OKAY
    assert [await value_of(dut, "AGE_LIMIT", 0, one << 13) for one in range(SLICES)] == [77] * SLICES
    frames = Counter(slice_of(conversation(bench.rng, one, 0, 60, True), SLICES) for one in range(SLICES))
    assert frames == Counter(range(SLICES))


@pytest.mark.timeout(1200)  # eight slices: two minutes on a machine of its own
@pytest.mark.parametrize(("width", "slices", "gbit"), [(512, 8, 100), (128, 2, 25), (64, 2, 25)])
def test_sliced_switch(width: int, slices: int, gbit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """100G, and 25G with a MAC of either width."""
    for name, value in (("WIDTH", width), ("SLICES", slices), ("GBIT", gbit)):
        monkeypatch.setenv(name, str(value))
    simulate(
        "netfold_switch_sliced", __file__, Ports=PORTS, Slices=slices, Width=width, AddressEntries=64,
        AddressTickBits=10, HasBfp=0, PortBeats=1024, QueueBeats=512, MessagePackets=32, InputBytes=16384,
    )  # fmt: skip
