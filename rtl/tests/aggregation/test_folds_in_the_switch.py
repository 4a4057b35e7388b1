"""The whole switch folds from port to port, at line rate, in rank order, within the time limits."""

from __future__ import annotations

import os
import random
from typing import Any

import cocotb
import numpy as np
import pytest
from campaign import Way
from cocotb.triggers import RisingEdge
from scapy.layers.l2 import Ether
from scapy.packet import Raw

import netfold
from benches import chance, simulate
from ethernet import Bench
from halves import folded, rounded
from registers import OKAY, value_of, write
from roce_frames import ONE_WAY, SHORT, SUMMED_LABEL, Connection, aggregation_header, elements_of, mac, read

PORTS = int(os.environ.get("PORTS", "4"))
FOLD_NS_MAX, REPEAT_NS_MAX = 1700, 1000
CLEAR_CYCLES = 1100  # the address table and the Aggregation Status Buffer
WIRES = {1: "fp32", 2: "fp16", 3: "bf16"}  # by format of the header
HAS_HALF_SHIFT = 17  # in SHAPE


async def begin(dut: Any, rng: random.Random) -> Bench:
    """A switch with cleared tables that adds floats."""
    bench = Bench(dut, PORTS, random.Random(rng.random()))
    await bench.start()
    for _ in range(CLEAR_CYCLES):
        await RisingEdge(dut.clk_i)
    assert await write(dut, "AGG_MODE", 1) == OKAY
    assert await value_of(dut, "SHAPE") == 1 << HAS_HALF_SHIFT | 1 << 8 | PORTS
    return bench


def gradients(values: np.random.Generator, words: int, wire: str) -> bytes:
    """Of one worker."""
    if wire == "fp32":
        return values.standard_normal(words, np.float32).tobytes()
    return rounded(values.standard_normal(2 * words, np.float32), wire).tobytes()


def sum_of(given: list[bytes], wire: str) -> bytes:
    """The software's."""
    if wire == "fp32":
        return netfold.fold([np.frombuffer(one, np.float32) for one in given]).tobytes()
    return folded([np.frombuffer(one, np.uint16) for one in given], wire).tobytes()


@cocotb.test()
async def folds_at_line_rate(dut: Any) -> None:
    """Messages of many packets from all ports at once, back to back, each in another format; then repeated packets. No
    worker has sent a frame before; when a sum leaves, all have."""
    rng = chance()
    bench = await begin(dut, rng)

    packets, messages = 24, 3
    count = (packets * 1024 - 20) // 4
    values = np.random.default_rng(rng.randrange(1 << 30))
    formats = rng.sample(list(WIRES), messages)
    numbers = [[gradients(values, count, WIRES[fmt]) for _ in range(PORTS)] for fmt in formats]
    connections = [Connection(mac(r), mac((r + 1) % PORTS), 0x200 + r, r + 1, r + 2) for r in range(PORTS)]
    first_psn = [rng.randrange(1 << 24) for _ in range(PORTS)]
    sent: list[list[bytes]] = [[] for _ in range(PORTS)]
    for message in range(messages):
        for r in range(PORTS):
            header = aggregation_header(r, message, 4 * count, fmt=formats[message])
            psn = (first_psn[r] + message * packets) & 0xFFFFFF
            sent[r] += connections[r].message(psn, header, numbers[message][r], message)
    for r in range(PORTS):
        for frame in sent[r]:
            bench.give(r, frame)
    await bench.idle(100_000, quiet=400)
    latest = 0.0
    for r in range(PORTS):
        port = bench.ports[(r + 1) % PORTS]
        frames = [read(one.frame) for one in port.sent]
        assert [one.psn for one in frames] == [(first_psn[r] + i) & 0xFFFFFF for i in range(messages * packets)]
        assert all(one.flow_label == SUMMED_LABEL for one in frames)
        for message in range(messages):
            sums = b"".join(elements_of(frames[message * packets + i], i) for i in range(packets))
            assert sums == sum_of(numbers[message], WIRES[formats[message]])
        came = [max(bench.ports[p].began_ns[i] for p in range(PORTS)) for i in range(len(frames))]
        latest = max(latest, *(one.time_ns - at for one, at in zip(port.sent, came, strict=True)))
        assert port.underruns == 0
    dut._log.info("a fold takes at most %.0f ns", latest)
    assert latest <= FOLD_NS_MAX

    for port in bench.ports:
        port.sent.clear()
        port.began_ns.clear()
    index = packets + 5
    bench.give(0, sent[0][index])
    await bench.idle(quiet=400)
    (again,) = bench.ports[1].sent
    assert read(again.frame).psn == (first_psn[0] + index) & 0xFFFFFF
    took = again.time_ns - bench.ports[0].began_ns[0]
    dut._log.info("a repeat takes %.0f ns", took)
    assert took <= REPEAT_NS_MAX


@cocotb.test()
async def goes_one_way_at_line_rate(dut: Any) -> None:
    """Messages that belong to the ranks in turn, from all ports at once and back to back: to their owners, and from
    their givers. Nothing is lost, though a giver is far behind those who only say that they are there."""
    rng = chance()
    bench = await begin(dut, rng)
    packets, messages = 24, 2 * PORTS
    count = (packets * 1024 - 20) // 4
    values = np.random.default_rng(rng.randrange(1 << 30))
    numbers = [[gradients(values, count, "fp32") for _ in range(PORTS)] for _ in range(messages)]
    for r in range(PORTS):
        connection = Connection(mac(r), mac((r + 1) % PORTS), 0x200 + r, r + 1, r + 2, version=2)
        for message in range(messages):
            way = Way(message % PORTS, message >= PORTS)
            header = aggregation_header(way.rank_field(r), message, 4 * count, fmt=1, flags=ONE_WAY | PORTS << 3)
            is_short = way.gives and r != way.other
            for frame in connection.message(message * packets, header, numbers[message][r], message, is_short):
                bench.give(r, frame)
    await bench.idle(200_000, quiet=400)
    for r in range(PORTS):
        port = bench.ports[(r + 1) % PORTS]
        frames = [read(one.frame) for one in port.sent]
        assert [one.psn for one in frames] == list(range(messages * packets))
        assert all(one.is_sum for one in frames)
        for message in range(messages):
            gives, other = message >= PORTS, message % PORTS
            found = [elements_of(frames[message * packets + i], i) for i in range(packets)]
            if ((r + 1) % PORTS == other) == gives:
                assert found == [bytes(SHORT)] * packets
            else:
                given = numbers[message]
                assert b"".join(found) == (given[other] if gives else sum_of(given, "fp32"))
        assert port.underruns == 0


@cocotb.test()
async def follows_a_worker_that_moves(dut: Any) -> None:
    """A sum goes to the port at which its worker's address was last seen, not to the port of the contribution."""
    bench = await begin(dut, chance())
    spare, folding = PORTS - 1, PORTS - 1
    assert await write(dut, "AGG_PORT_CFG", folding << 27 | (1 << folding) - 1) == OKAY
    count = (2 * 1024 - 20) // 4
    sent = [
        Connection(mac(r), mac((r + 1) % folding), 0x200 + r).message(
            7, aggregation_header(r, 0, 4 * count), bytes(4 * count)
        )
        for r in range(folding)
    ]
    for r in range(folding - 1):
        bench.give(r, sent[r][0])
    await bench.idle(quiet=400)
    bench.give(spare, bytes(Ether(src=mac(1), dst=mac(0)) / Raw(bytes(46))))
    await bench.idle()
    for port in bench.ports:
        port.sent.clear()
    bench.give(folding - 1, sent[folding - 1][0])
    await bench.idle(quiet=400)
    went = {index: [read(one.frame).queue_pair for one in port.sent] for index, port in enumerate(bench.ports)}
    assert went == {spare: [0x200], 1: [], **{r: [0x200 + r - 1] for r in range(2, folding)}, 0: [0x200 + folding - 1]}


def test_folds_in_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    """All ports fold."""
    monkeypatch.setenv("PORTS", str(PORTS))
    simulate("netfold_switch", __file__, Ports=PORTS, AddressEntries=64, AddressTickBits=10, HasBfp=0, HasHalf=1)
