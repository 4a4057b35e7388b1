"""Compares the registers with rtl/registers.toml: every one is read and written; posts, completions, counters."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from axi_lite import OKAY, SLAVE_ERROR, AxiLite, Wires
from benches import chance, number, simulate, start
from netfold_lab.rtl import registers

MAP = registers.read(registers.NIC)
OFFSETS = {register.name: register.offset for register in MAP.registers}
COMPLETION_VALID, SOFT_RESET = 1 << 31, 1 << 2
INPUTS = ("room_i", "completion_valid_i", "completion_i", "ready_i", "failed_i", "busy_i", "resetting_i", "reason_i")


def writable(register: registers.Register) -> int:
    """The writable bits."""
    if register.name == "CONTROL":
        return 0b11
    if register.name.endswith("ADDRESS_HIGH"):
        return 0xFFFF
    fields = [(1 << field.high - field.low + 1) - 1 << field.low for field in register.fields]
    return sum(fields) if fields else 0xFFFFFFFF


async def begin(dut: Any) -> tuple[AxiLite, Any]:
    """Clock, reset, the port and the randomness."""
    rng = chance()
    axi = AxiLite(Wires(dut, {}), rng)
    await start(dut, **dict.fromkeys(INPUTS, 0), link_idle_i=0, count_i=0)
    return axi, rng


@cocotb.test()
async def keeps_what_is_written(dut: Any) -> None:
    """Accesses in any order; registers that are read-only or do not exist reject writes."""
    axi, rng = await begin(dut)
    kept = {register.name: register for register in MAP.registers if register.access == "rw"}
    values = {name: await axi.read(register.offset) for name, register in kept.items()}
    assert values == {name: register.reset for name, register in kept.items()}
    for _ in range(150):
        name = rng.choice(list(kept))
        values[name] = rng.getrandbits(32) & writable(kept[name])
        assert await axi.write(kept[name].offset, values[name]) == OKAY
        other = rng.choice(list(kept))
        assert await axi.read(kept[other].offset) == values[other], other
    for register in MAP.registers:
        if register.access in ("ro", "rc"):
            assert await axi.write(register.offset, 0) == SLAVE_ERROR, register.name
    assert await axi.write(0x7FC, 0) == SLAVE_ERROR and await axi.read(0x7FC) == 0
    assert await axi.read(OFFSETS["ID"]) == 0x4E464C44 and await axi.read(OFFSETS["VERSION"]) == MAP.version
    await axi.write(OFFSETS["CONTROL"], SOFT_RESET | 0b11)
    assert await axi.read(OFFSETS["CONTROL"]) == 0b10, "a soft reset disables, and is not kept"


@cocotb.test()
async def posts_where_there_is_room(dut: Any) -> None:
    """A request is passed on once, with all written values; if the queue is full, the write fails."""
    axi, rng = await begin(dut)
    posted: list[int] = []

    async def watch() -> None:
        while True:
            await RisingEdge(dut.clk_i)
            if dut.post_o.value:
                posted.append(number(dut.request_o))  # source, destination, count, tag

    cocotb.start_soon(watch())
    names = ("SOURCE_HIGH", "SOURCE_LOW", "DESTINATION_HIGH", "DESTINATION_LOW", "COUNT")
    wanted = []
    for _ in range(20):
        words = [rng.getrandbits(32) for _ in names]
        for name, word in zip(names, words, strict=True):
            await axi.write(OFFSETS[f"REQUEST_{name}"], word)
        tag, room = rng.getrandbits(16), rng.choice([0, 1, 16])
        dut.room_i.value = room
        assert await axi.read(OFFSETS["REQUEST_ROOM"]) == room
        assert await axi.write(OFFSETS["REQUEST_POST"], tag) == (OKAY if room else SLAVE_ERROR)
        if room:
            wanted.append(int("".join(f"{word:08x}" for word in words) + f"{tag:04x}", 16))
    await RisingEdge(dut.clk_i)
    assert posted == wanted


@cocotb.test()
async def counts_and_completes(dut: Any) -> None:
    """Counters count events of every cycle; reading a completion removes it, once."""
    axi, rng = await begin(dut)
    counted = [0] * len(MAP.counters)
    for _ in range(200):
        events = rng.getrandbits(len(counted))
        dut.count_i.value = events
        await RisingEdge(dut.clk_i)
        counted = [count + (events >> i & 1) for i, count in enumerate(counted)]
    dut.count_i.value = 0
    assert [await axi.read(register.offset) for register in MAP.counters] == counted

    taken = 0

    async def watch() -> None:
        nonlocal taken
        while True:
            await RisingEdge(dut.clk_i)
            taken += int(dut.completion_taken_o.value and dut.completion_valid_i.value)
            if dut.completion_taken_o.value:
                dut.completion_valid_i.value = 0

    cocotb.start_soon(watch())
    for _ in range(10):
        status, tag = rng.randrange(5), rng.getrandbits(16)
        dut.completion_i.value = status << 16 | tag
        dut.completion_valid_i.value = 1
        assert await axi.read(OFFSETS["COMPLETION"]) == COMPLETION_VALID | status << 16 | tag
        assert await axi.read(OFFSETS["COMPLETION"]) == 0
    assert taken == 10
    dut.ready_i.value, dut.reason_i.value, dut.link_idle_i.value = 1, 2, 1
    await RisingEdge(dut.clk_i)
    assert await axi.read(OFFSETS["STATUS"]) == 0b1010_0001


def test_nic_registers() -> None:
    """The registers behind AXI-Lite, with pauses."""
    simulate("nic_registers", __file__)
