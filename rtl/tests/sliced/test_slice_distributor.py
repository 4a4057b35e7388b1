"""From a fast MAC to the slices: every frame comes whole and in order to the slice that a plain model says, or not at
all, and is counted then."""

from __future__ import annotations

import os
import random
from collections import deque
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge
from slices import begin, frames, sizes_of, slice_of

from benches import chance, number, simulate
from ethernet import AROUND, FRAME_MAX, FRAME_MIN, beats_of

QUEUE_BYTES = 4096
WAIT_MAX = 8000  # cycles
WIDTH, SLICES = int(os.environ.get("WIDTH", "512")), int(os.environ.get("SLICES", "8"))
EVERY = os.environ.get("EVERY") == "1"
BEAT = WIDTH // 8
Frame = tuple[bytes, bool]  # bytes, and whether it is damaged


class Sides:
    """The MAC that gives frames, and the slices that take them."""

    def __init__(self, dut: Any, rng: random.Random) -> None:
        self.dut, self.rng = dut, rng
        self.stall = 0.0  # probability that a slice does not take a beat
        self.asleep: set[int] = set()
        self.partial = [b""] * SLICES
        self.taken: list[list[Frame]] = [[] for _ in range(SLICES)]
        self.given = [0] * SLICES  # bytes
        self.came = [0] * SLICES
        self.dropped = [0] * SLICES

    async def take(self) -> None:
        """Run forever."""
        dut, ready = self.dut, 0
        while True:
            await RisingEdge(dut.clk_i)
            valid = number(dut.m_tvalid_o)
            dropped = number(dut.m_dropped_o)
            for one in range(SLICES if dropped else 0):
                self.dropped[one] += dropped >> 6 * one & 63
            if valid & ready:
                self._read(valid & ready)
            ready = sum(1 << one for one in range(SLICES) if one not in self.asleep and self.rng.random() >= self.stall)
            dut.m_tready_i.value = ready

    def _read(self, moved: int) -> None:
        names = ("tdata", "tkeep", "tlast", "tuser")
        data, keep, last, user = (number(getattr(self.dut, f"m_{name}_o")) for name in names)
        for one in (one for one in range(SLICES) if moved >> one & 1):
            kept = (keep >> 8 * one & 0xFF).bit_count()
            assert keep >> 8 * one & 0xFF == (1 << kept) - 1
            is_last, is_damaged = bool(last >> one & 1), bool(user >> one & 1)
            assert is_last or (kept == 8 and not is_damaged)
            self.partial[one] += (data >> 64 * one & (1 << 64) - 1).to_bytes(8, "little")[:kept]
            if is_last:
                self.taken[one].append((self.partial[one], is_damaged))
                self.came[one] += len(self.partial[one])
                self.partial[one] = b""

    async def give(self, frame: bytes, damaged: bool, holes: float) -> None:
        """One frame, with holes between its beats."""
        dut, rng = self.dut, self.rng
        self.given[slice_of(frame, SLICES)] += len(frame)
        for data, keep, last, error in beats_of(frame, damaged, BEAT):
            while rng.random() < holes:
                await self.pause()
            dut.s_tvalid_i.value, dut.s_tdata_i.value, dut.s_tkeep_i.value = 1, data, keep
            # Behind the end lies anything; damage counts with the last beat only.
            if last:
                dut.s_tdata_i.value = data | rng.getrandbits(WIDTH) & ~((1 << 8 * keep.bit_count()) - 1)
            dut.s_tlast_i.value, dut.s_tuser_i.value = last, error if last else rng.getrandbits(1)
            await RisingEdge(dut.mac_clk_i)
        dut.s_tvalid_i.value = 0

    async def pause(self, cycles: int = 1) -> None:
        """The MAC has nothing."""
        dut = self.dut
        dut.s_tvalid_i.value = 0
        dut.s_tlast_i.value = self.rng.getrandbits(1)
        for _ in range(cycles):
            await RisingEdge(dut.mac_clk_i)

    async def room(self, slice_: int) -> None:
        """Wait until the slice's queue takes another frame for certain."""
        for _ in range(WAIT_MAX):
            if self.given[slice_] - self.came[slice_] <= QUEUE_BYTES - 2 * FRAME_MAX - 200:
                return
            await self.pause()
        raise AssertionError(f"slice {slice_} gave {self.came[slice_]} of {self.given[slice_]} bytes")

    async def settle(self) -> None:
        """Wait until all that is inside has come out."""
        for _ in range(4):
            before = list(self.came)
            await self.pause(600)
        assert self.came == before


async def make(dut: Any) -> Sides:
    """Clocks, and both sides."""
    sides = Sides(dut, chance())
    await begin(dut, WIDTH)
    cocotb.start_soon(sides.take())
    await sides.pause(4)
    return sides


def plain(rng: random.Random, one: int, size: int) -> bytes:
    """A frame for this slice by its addresses."""
    while True:
        frame = bytes([2]) + rng.randbytes(11) + b"\x12\x34" + rng.randbytes(size - 14)
        if slice_of(frame, SLICES) == one:
            return frame


def by_slice(sent: list[Frame]) -> list[list[Frame]]:
    """Frames by the slice that the model says."""
    return [[frame for frame in sent if slice_of(frame[0], SLICES) == one] for one in range(SLICES)]


@cocotb.test()
@cocotb.parametrize((("holes", "stall"), [(0.0, 0.0), (0.3, 0.2)]))
async def brings_every_frame_to_its_slice(dut: Any, holes: float, stall: float) -> None:
    """Frames of every kind and length, damaged ones too, as fast as the queues have room."""
    sides = await make(dut)
    sides.stall = stall
    sent = list(frames(sides.rng, sizes_of(sides.rng, EVERY and not holes, 250)))
    for frame, damaged in sent:
        await sides.room(slice_of(frame, SLICES))
        await sides.give(frame, damaged, holes)
    await sides.settle()
    assert sides.taken == by_slice(sent)
    assert all(sides.taken), "a slice got no frame"
    assert sides.dropped == [0] * SLICES


@cocotb.test()
async def keeps_line_rate(dut: Any) -> None:
    """The shortest frames, and the longest, to the slices in turn, with Ethernet's gaps only: none is dropped."""
    sides = await make(dut)
    gbit = 100 if WIDTH == 512 else 25
    rate = gbit * {64: 2.56, 128: 5.12, 512: 3.104}[WIDTH] / 8  # bytes in a cycle
    sent: list[Frame] = []
    debt = 0.0
    for size in [FRAME_MIN] * 30 * SLICES + [1514] * 4 * SLICES + [65, 61, 128, 129] * 8 * SLICES:
        one = len(sent) % SLICES
        frame = plain(sides.rng, one, size)
        sent.append((frame, False))
        await sides.give(frame, False, 0.0)
        debt += (max(size, FRAME_MIN) + AROUND) / rate - len(beats_of(frame, False, BEAT))
        await sides.pause(int(debt))
        debt -= int(debt)
    await sides.settle()
    if gbit / 12.5 <= SLICES:
        assert sides.dropped == [0] * SLICES
        assert sides.taken == by_slice(sent)
    else:
        assert sum(sides.dropped) + sum(map(len, sides.taken)) == len(sent)


@cocotb.test()
async def drops_whole_frames(dut: Any) -> None:
    """Slices that sleep now and then, and a MAC that does not wait: frames are missing, the others are intact and in
    order, and what is missing is counted."""
    sides = await make(dut)
    rng = sides.rng
    sent: list[Frame] = []
    had_room = 0
    waiting = deque(frames(rng, sizes_of(rng, False, 500)))
    while waiting:
        if rng.random() < 0.05:
            sides.asleep = {one for one in range(SLICES) if rng.random() < 0.6}
        frame, damaged = waiting.popleft()
        # Each frame has a number at its end, so equal ones do not hide a loss.
        frame = (frame[:-4] if len(frame) >= 70 else frame.ljust(66, b"\0")) + len(sent).to_bytes(4, "big")
        one = slice_of(frame, SLICES)
        before, outstanding = sides.dropped[one], sides.given[one] - sides.came[one]
        sent.append((frame, damaged))
        await sides.give(frame, damaged, 0.0)
        if outstanding == 0 and one not in sides.asleep:
            had_room += 1
            await sides.pause(40)
            assert sides.dropped[one] == before or sides.asleep
        if rng.random() < 0.5:
            await sides.pause(rng.randrange(30))
    sides.asleep = set()
    await sides.settle()
    for taken, mine, dropped in zip(sides.taken, by_slice(sent), sides.dropped, strict=True):
        at = 0
        for frame in taken:
            at = mine.index(frame, at) + 1  # in order, and unchanged
        assert len(taken) + dropped == len(mine)
    assert sum(sides.dropped) > 20 and sum(map(len, sides.taken)) > 100


@cocotb.test()
async def cuts_frames_that_are_too_long(dut: Any) -> None:
    """Its slice gets more than the longest frame, damaged, and nothing of what follows; then comes the next one."""
    sides = await make(dut)
    longest = FRAME_MAX // BEAT * BEAT + BEAT
    sent: list[Frame] = []
    for size in (FRAME_MAX, longest, longest + 1, longest + BEAT + 1, 9000, FRAME_MIN, 2 * longest, 61):
        ((frame, _),) = frames(sides.rng, [size])
        await sides.room(slice_of(frame, SLICES))
        await sides.give(frame, False, 0.1)
        sides.given[slice_of(frame, SLICES)] -= max(0, size - longest)
        sent.append((frame[:longest], size > longest))
    await sides.settle()
    assert sides.taken == by_slice(sent)


@pytest.mark.parametrize(("width", "slices", "every"), [(64, 2, 1), (64, 8, 0), (128, 4, 1), (512, 8, 1)])
def test_slice_distributor(width: int, slices: int, every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Widths and numbers of slices; with some of them, frames of every length."""
    for name, value in (("WIDTH", width), ("SLICES", slices), ("EVERY", every)):
        monkeypatch.setenv(name, str(value))
    simulate("slice_distributor", __file__, Width=width, Slices=slices, QueueBytes=QUEUE_BYTES)
