"""From the slices to a fast MAC: every frame comes whole, without a hole, and those of a slice in order."""

from __future__ import annotations

import os
import random
from collections import deque
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge
from slices import CORE_PS, MAC_PS, begin, sizes_of

from benches import chance, number, simulate
from ethernet import AROUND, FRAME_MAX, FRAME_MIN, beats_of

WIDTH, SLICES = int(os.environ.get("WIDTH", "512")), int(os.environ.get("SLICES", "8"))
EVERY = os.environ.get("EVERY") == "1"
BEAT = WIDTH // 8
CYCLES_MAX = 200_000
GBIT = 100 if WIDTH == 512 else 25
Frame = tuple[bytes, bool]  # bytes, and whether it is to be sent damaged


class Sides:
    """The slices that give frames, and the MAC that takes them."""

    def __init__(self, dut: Any, rng: random.Random) -> None:
        self.dut, self.rng = dut, rng
        self.waiting: list[deque[tuple[int, int, int, int]]] = [deque() for _ in range(SLICES)]
        self.idle = 0.0  # probability that a slice has no beat
        self.stall = 0.0  # probability that the MAC does not take a beat
        self.at_line_rate = False  # the MAC takes as many beats as its line carries
        self.taken: list[Frame] = []
        self.cycles = 0  # of the MAC, with a beat before the last frame
        self.held = 0  # beats that a slice had to wait for

    def give(self, one: int, frame: bytes, damaged: bool = False) -> None:
        """A frame of a slice, behind those given before."""
        self.waiting[one].extend(beats_of(frame, damaged))

    async def feed(self) -> None:
        """Run forever."""
        dut, offered = self.dut, 0
        while True:
            await RisingEdge(dut.clk_i)
            ready = number(dut.s_tready_o)
            for one in range(SLICES):
                if (offered & ready) >> one & 1:
                    self.waiting[one].popleft()
            self.held += (offered & ~ready).bit_count()
            held = offered & ~ready
            offered, values = 0, [0, 0, 0, 0]
            for one, beats in enumerate(self.waiting):
                if not beats or not (held >> one & 1 or self.rng.random() >= self.idle):
                    continue
                offered |= 1 << one
                for index, (value, width) in enumerate(zip(beats[0], (64, 8, 1, 1), strict=True)):
                    values[index] |= value << width * one
            dut.s_tvalid_i.value = offered
            for name, value in zip(("tdata", "tkeep", "tlast", "tuser"), values, strict=True):
                getattr(dut, f"s_{name}_i").value = value

    async def take(self) -> None:
        """Run forever."""
        dut, ready, data, debt = self.dut, 0, b"", 0.0
        rate = GBIT * MAC_PS[WIDTH] / 8000  # bytes in a cycle
        while True:
            await RisingEdge(dut.mac_clk_i)
            valid = bool(dut.m_tvalid_o.value)
            assert valid or not data, "a frame has a hole"
            debt = max(0.0, debt - 1)
            if valid and ready:
                kept = number(dut.m_tkeep_o).bit_count()
                last, damaged = bool(dut.m_tlast_o.value), bool(dut.m_tuser_o.value)
                assert number(dut.m_tkeep_o) == (1 << kept) - 1
                assert last or (kept == BEAT and not damaged)
                data += number(dut.m_tdata_o).to_bytes(BEAT, "little")[:kept]
                if last:
                    self.taken.append((data, damaged))
                    debt += (max(FRAME_MIN, len(data)) + AROUND) / rate - -(-len(data) // BEAT)
                    data = b""
            # At line rate the MAC has a gap behind a frame; otherwise it stalls at any beat.
            ready = int(debt < 1) if self.at_line_rate else int(self.rng.random() >= self.stall)
            dut.m_tready_i.value = ready


async def make(dut: Any) -> Sides:
    """Clocks, and both sides."""
    sides = Sides(dut, chance())
    await begin(dut, WIDTH)
    cocotb.start_soon(sides.feed())
    cocotb.start_soon(sides.take())
    return sides


async def all_of(sides: Sides, count: int) -> int:
    """Wait for this number of frames; returns the cycles of the slices that it took."""
    for cycle in range(CYCLES_MAX):
        if len(sides.taken) >= count:
            return cycle
        await RisingEdge(sides.dut.clk_i)
    raise AssertionError(f"{len(sides.taken)} of {count} frames came")


@cocotb.test()
@cocotb.parametrize((("idle", "stall"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.4), (0.3, 0.4)]))
async def brings_every_frame(dut: Any, idle: float, stall: float) -> None:
    """Frames of every length, some damaged, from all slices at once."""
    sides = await make(dut)
    sides.idle, sides.stall = idle, stall
    sent: list[list[Frame]] = [[] for _ in range(SLICES)]
    for index, size in enumerate(sizes_of(sides.rng, EVERY and not idle + stall, 200)):
        one = sides.rng.randrange(SLICES)
        # The slice, and a number: no two frames are equal, but for those of a few bytes.
        whole = bytes([one]) + index.to_bytes(2, "big") + sides.rng.randbytes(FRAME_MAX)
        frame = whole[: max(3, size)], sides.rng.random() < 0.1
        sent[one].append(frame)
        sides.give(one, *frame)
    await all_of(sides, sum(map(len, sent)))
    assert [[frame for frame in sides.taken if frame[0][0] == one] for one in range(SLICES)] == sent


@cocotb.test()
async def keeps_line_rate(dut: Any) -> None:
    """The shortest frames and others from all slices in turn fill the MAC's line."""
    if SLICES * 12.5 < GBIT:
        return
    sides = await make(dut)
    sides.at_line_rate = True
    for size in (FRAME_MIN, 61, 128, 1020, 1514):
        sides.taken.clear()
        rounds = 40 if size < 200 else 8
        for number_ in range(rounds):
            for one in range(SLICES):
                sides.give(one, bytes([one, number_]) + bytes(size - 2))
        took = await all_of(sides, rounds * SLICES)
        line = rounds * SLICES * (size + AROUND) * 8000 / GBIT / CORE_PS
        # By slices: a slice gives a frame of any length within its share of the line.
        slower = max(line, rounds * -(-size // 8))
        assert took <= slower * 1.02 + 60 + 2 * -(-size // 8), (size, took, slower)


@cocotb.test()
async def takes_slices_in_turn(dut: Any) -> None:
    """While all slices have frames, none of them is passed over."""
    sides = await make(dut)
    sides.stall = 0.9
    for number_ in range(20):
        for one in range(SLICES):
            sides.give(one, bytes([one, number_]) + bytes(58))
    await all_of(sides, 20 * SLICES)
    order = [frame[0][0] for frame in sides.taken]
    middle = order[4 * SLICES : 12 * SLICES]
    for at in range(0, len(middle), SLICES):
        assert sorted(middle[at : at + SLICES]) == list(range(SLICES)), order


@pytest.mark.parametrize(("width", "slices", "every"), [(64, 2, 1), (64, 8, 0), (128, 4, 1), (512, 8, 1)])
def test_slice_merger(width: int, slices: int, every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Widths and numbers of slices; with some of them, frames of every length."""
    for name, value in (("WIDTH", width), ("SLICES", slices), ("EVERY", every)):
        monkeypatch.setenv(name, str(value))
    simulate("slice_merger", __file__, Width=width, Slices=slices)
