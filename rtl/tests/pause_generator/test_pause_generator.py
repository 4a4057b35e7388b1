"""Pause frames of IEEE 802.3: when buffers fill, again while they are full, and an end when they are empty."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge
from scapy.layers.l2 import Ether

from benches import chance, number, simulate, start

REFRESH_BITS = 7
BEAT, WAIT_MAX = 8, 60
HEAD = bytes(Ether(dst="01:80:c2:00:00:01", src="02:4e:46:00:00:01", type=0x8808)) + b"\0\1"


class Neighbour:
    """A neighbour that accepts frames slowly, and knows how long it must be silent."""

    def __init__(self, dut: Any) -> None:
        self.dut, self.rng = dut, chance()
        self.partial = b""
        self.frames: list[tuple[int, int]] = []  # cycle of the last beat, quanta
        self.cycles = 0

    async def cycle(self) -> None:
        """One."""
        dut = self.dut
        dut.m_ready_i.value = int(self.rng.random() < 0.7)
        await RisingEdge(dut.clk_i)
        self.cycles += 1
        if not (dut.m_valid_o.value and dut.m_ready_i.value):
            return
        beat = number(dut.m_beat_o)
        extra, last, error = beat >> 64 & 7, beat >> 67 & 1, beat >> 68
        self.partial += (beat & (1 << 64) - 1).to_bytes(BEAT, "little")[: extra + 1 if last else BEAT]
        if last:
            assert len(self.partial) == 60 and not error
            assert self.partial[:16] == HEAD and self.partial[18:] == bytes(42)
            self.frames.append((self.cycles, int.from_bytes(self.partial[16:18], "big")))
            self.partial = b""

    async def wait(self, cycles: int) -> list[tuple[int, int]]:
        """The frames that arrive within a number of cycles."""
        before = len(self.frames)
        for _ in range(cycles):
            await self.cycle()
        return self.frames[before:]


@cocotb.test()
async def pauses_and_ends_pauses(dut: Any) -> None:
    """Buffers that fill for a moment and for long, empty and half empty, enabled and not."""
    await start(dut, enable_i=1, is_filling_i=0, is_empty_i=1, m_ready_i=0)
    neighbour = Neighbour(dut)
    rng = neighbour.rng
    assert await neighbour.wait(WAIT_MAX) == []
    for _ in range(25):
        dut.is_filling_i.value, dut.is_empty_i.value = 1, 0
        await neighbour.cycle()
        dut.is_filling_i.value = rng.randrange(2)  # a moment is enough
        assert [quanta for _, quanta in await neighbour.wait(WAIT_MAX)] == [0xFFFF]
        dut.is_filling_i.value = 0
        again = await neighbour.wait(rng.randrange(4) * (1 << REFRESH_BITS))
        assert all(quanta == 0xFFFF for _, quanta in again)
        times = [at for at, _ in neighbour.frames[-len(again) - 1 :]]
        assert all(after - before >= 1 << REFRESH_BITS for before, after in pairwise(times))
        assert neighbour.cycles - times[-1] < (1 << REFRESH_BITS) + WAIT_MAX  # the pause is refreshed in time
        if rng.random() < 0.3:
            dut.enable_i.value = 0
            dut.is_filling_i.value = 1
        else:
            dut.is_empty_i.value = 1
        ended = [quanta for _, quanta in await neighbour.wait(2 * WAIT_MAX)]
        assert ended in ([0], [0xFFFF, 0])  # a frame may have been in flight
        assert await neighbour.wait(2 << REFRESH_BITS) == []
        dut.enable_i.value, dut.is_filling_i.value, dut.is_empty_i.value = 1, 0, 1


@cocotb.test()
async def begins_anew_after_a_reset(dut: Any) -> None:
    """A reset within a frame: the next frame is whole."""
    await start(dut, enable_i=1)
    for beats in range(8):
        dut.is_filling_i.value, dut.m_ready_i.value = 1, 1
        for _ in range(2 + beats):
            await RisingEdge(dut.clk_i)
        dut.is_filling_i.value, dut.rst_ni.value = 0, 0
        await RisingEdge(dut.clk_i)
        dut.rst_ni.value, dut.is_filling_i.value = 1, 1
        neighbour = Neighbour(dut)
        assert [quanta for _, quanta in await neighbour.wait(WAIT_MAX)] == [0xFFFF]
        dut.is_filling_i.value, dut.is_empty_i.value = 0, 1
        assert [quanta for _, quanta in await neighbour.wait(WAIT_MAX)] == [0]
        dut.is_empty_i.value = 0


def test_pause_generator() -> None:
    """Refreshed after 128 cycles."""
    simulate("pause_generator", __file__, RefreshBits=REFRESH_BITS)
