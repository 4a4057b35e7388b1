"""A port's counters: they lose no event, with any simultaneous events and reads."""

from __future__ import annotations

from collections import Counter
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from benches import chance, number, simulate, start
from registers import MAP

COUNTERS = {name: (one.offset - 0x1000) // 4 for name, one in MAP.items() if one.is_counter}
AMOUNTS = {
    "BYTES_IN": ("bytes_in_i", 1526), "BYTES_OUT": ("bytes_out_i", 1526), "DROP_QUEUE_FULL": ("copies_i", 15),
    "DROP_ROOM": ("rooms_i", 65),
}  # fmt: skip
FRAME_CYCLES, EVENTS_MAX, CLEAR_CYCLES = 13, 6, 70  # the shortest frame at 10 Gbit/s, with its gap


async def read(dut: Any, index: int) -> int:
    """Counter `index`, in the cycle after it is asked for."""
    dut.read_i.value, dut.index_i.value = 1, index
    await RisingEdge(dut.clk_i)
    dut.read_i.value = 0
    await RisingEdge(dut.clk_i)
    return number(dut.data_o)


@cocotb.test()
async def counts_all(dut: Any) -> None:
    """Back-to-back frames with the largest number of events, and occasional reads."""
    rng = chance()
    await start(dut, read_i=1)  # a read delays what is counted, and no event of before the reset is
    for _ in range(CLEAR_CYCLES):
        await RisingEdge(dut.clk_i)
    dut.read_i.value = 0
    for _ in range(CLEAR_CYCLES):
        await RisingEdge(dut.clk_i)
    total: Counter[str] = Counter()
    for _ in range(1500):
        events = rng.sample(sorted(COUNTERS), rng.randrange(EVENTS_MAX + 1))
        at = {name: COUNTERS[name] % FRAME_CYCLES for name in events}
        reads = rng.randrange(4 * FRAME_CYCLES)
        for cycle in range(FRAME_CYCLES):
            dut.event_i.value = 0
            for signal, most in AMOUNTS.values():
                getattr(dut, signal).value = rng.randrange(1, most + 1)
            now = [name for name in events if at[name] == cycle]
            for name in now:
                amount = 1
                if name in AMOUNTS:
                    signal, most = AMOUNTS[name]
                    amount = rng.randrange(1, most + 1)
                    getattr(dut, signal).value = amount
                total[name] += amount
            dut.event_i.value = sum(1 << COUNTERS[name] for name in now)
            dut.read_i.value, dut.index_i.value = int(cycle == reads), rng.randrange(len(COUNTERS))
            await RisingEdge(dut.clk_i)
    dut.event_i.value = dut.read_i.value = 0
    for _ in range(2 * len(COUNTERS)):
        await RisingEdge(dut.clk_i)
    assert {name: await read(dut, index) for name, index in COUNTERS.items()} == {
        name: total[name] for name in COUNTERS
    }


def test_port_counters() -> None:
    """All counters of the register map."""
    simulate("port_counters", __file__)
