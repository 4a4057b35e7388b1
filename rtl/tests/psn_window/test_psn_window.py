"""Compares the four floating base pointers with a model of core/switch/aggregation/psn_window, and with the paper's
example."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge

from benches import chance, number, simulate, start

NO_BASE, MASK = 0x1FFFFFF, 0xFFFFFF
COLUMNS, COLUMN_PACKETS, WINDOW_PACKETS = 4, 128, 512


@dataclass
class Window:
    """The law: fold::PsnWindow, and RoceJob::is_ahead."""

    bases: list[int] = field(default_factory=lambda: [NO_BASE] * COLUMNS)
    packets: list[int] = field(default_factory=lambda: [0] * COLUMNS)
    next: int = 0

    def reopen(self, column: int, psn: int, packets: int) -> None:
        """A column's message continues under other numbers."""
        self.bases[column], self.packets[column] = psn, packets

    def open(self, psn: int, packets: int) -> None:
        """The next message begins."""
        self.reopen(self.next, psn, packets)
        self.next = (self.next + 1) % COLUMNS

    def place_of(self, psn: int) -> int | None:
        """p3, p2, p1, p0."""
        for back in range(1, COLUMNS + 1):
            column = (self.next - back) % COLUMNS
            distance = (psn - self.bases[column]) & MASK
            if self.bases[column] <= MASK and distance < self.packets[column]:
                return column * COLUMN_PACKETS + distance
        return None

    def is_ahead(self, psn: int) -> bool:
        """A PSN less than a window after the newest message's first packet."""
        newest = self.bases[(self.next - 1) % COLUMNS]
        return newest > MASK or (psn - newest) & MASK < WINDOW_PACKETS


async def do(dut: Any, **inputs: int) -> None:
    """One cycle with these inputs; commands are 0 otherwise."""
    values = {"clear_i": 0, "forget_i": 0, "open_i": 0, "reopen_i": 0, **inputs}
    for name, value in values.items():
        getattr(dut, name).value = value
    await RisingEdge(dut.clk_i)


async def ask(dut: Any, psn: int) -> tuple[int | None, bool]:
    """The place of a packet, and whether it is ahead."""
    await do(dut, psn_i=psn)
    await ReadOnly()
    answer = number(dut.place_o) if dut.is_found_o.value else None, bool(dut.is_ahead_o.value)
    await RisingEdge(dut.clk_i)
    return answer


@cocotb.test()
async def finds_the_papers_example(dut: Any) -> None:
    """Section IV-C2: bases 25'h0ffffe0, 25'h0fffff0, 25'h0ffffff, 25'h1ffffff, PSN 0: index 257."""
    await start(dut, clear_i=0, forget_i=0, open_i=0, reopen_i=0, psn_i=0, column_i=0, packets_i=0)
    for base, packets in ((0xFFFFE0, 16), (0xFFFFF0, 15), (0xFFFFFF, 128)):
        await do(dut, open_i=1, base_i=base, packets_i=packets)
    assert await ask(dut, 0) == (257, True)


@cocotb.test()
async def follows_the_law(dut: Any) -> None:
    """Messages of all lengths, near the wrap and away from it, opened, reopened and removed."""
    rng = chance()
    await start(dut, clear_i=0, forget_i=0, open_i=0, reopen_i=0, psn_i=0, column_i=0, packets_i=0)
    window = Window()
    psn = 0xFFFF00
    for _ in range(1000):
        packets, column = rng.choice([1, 2, 3, 127, 128, rng.randrange(1, 129)]), rng.randrange(COLUMNS)
        match rng.randrange(20):
            case 0:
                await do(dut, clear_i=1)
                window = Window()
                psn = rng.choice([0xFFFF00, rng.randrange(1 << 24)])
            case 1:
                await do(dut, forget_i=1)
                window.bases = [NO_BASE] * COLUMNS
            case 2:  # all but this
                await do(dut, forget_i=1, reopen_i=1, column_i=column, base_i=psn, packets_i=packets)
                window.bases = [NO_BASE] * COLUMNS
                window.reopen(column, psn, packets)
            case 3 | 4:
                await do(dut, reopen_i=1, column_i=column, base_i=psn, packets_i=packets)
                window.reopen(column, psn, packets)
            case 5 | 6 | 7 | 8:
                await do(dut, open_i=1, column_i=column, base_i=psn, packets_i=packets)
                window.open(psn, packets)
                psn = (psn + packets) & MASK
            case _:
                near = [psn, *(base & MASK for base in window.bases)]
                asked = (rng.choice(near) + rng.randrange(-130, 600)) & MASK
                assert await ask(dut, asked) == (window.place_of(asked), window.is_ahead(asked))
        await do(dut)
        assert number(dut.bases_o) == sum(base << 25 * i for i, base in enumerate(window.bases))


def test_psn_window() -> None:
    """One window."""
    simulate("psn_window", __file__)
