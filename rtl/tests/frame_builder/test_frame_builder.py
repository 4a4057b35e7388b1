"""Frames are built from a header and a sum, in the Output Arbiter's steps, and compared with zlib's ICRC. Each goes to
its worker's port by the address table, or is dropped."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from benches import chance, number, packed, simulate, start
from roce_frames import SHORT, icrc

PORTS, BEAT, META_BEAT, ETHERNET, TAG = 4, 8, 15, 14, 4
PLAIN, WITH_HEADER, IMMEDIATE = range(3)
HEADER_BYTES = {PLAIN: 66, WITH_HEADER: 102, IMMEDIATE: 70}
EARLIER = 12  # bytes: in v2
TAIL = 2  # steps after the last one of the sum
FRAMES = 240


@dataclass
class Given:
    """A frame to send."""

    kind: int
    is_v2: bool
    has_tag: bool
    words: int
    header: bytes
    sum: bytes
    generation: int
    message: int
    is_short: bool
    is_repeat: bool
    is_gone: bool  # another frame's header is there
    is_kept: bool  # else the arbiter finds out that the sum is gone
    to: int  # ports; 0: unknown

    @property
    def frame(self) -> bytes:
        """The expected frame."""
        whole = self.header + (bytes(SHORT) if self.is_short else self.sum[: 4 * self.words])
        return whole + icrc(whole[ETHERNET + TAG * self.has_tag :])

    @property
    def packet(self) -> int:
        """`packet_t`."""
        place = 0 if self.kind == WITH_HEADER else 5
        return packed([(0, 4), (self.generation, 10), (place, 9), (self.message, 32), (self.words - 1, 8), (0, 3)])

    def beats(self) -> dict[int, int]:
        """Its address in the header buffer."""
        padded = self.header + bytes(-len(self.header) % BEAT)
        beats = {at // BEAT: int.from_bytes(padded[at : at + BEAT], "little") for at in range(0, len(padded), BEAT)}
        generation, message = self.generation, self.message
        if self.is_gone and self.words % 2:
            message ^= 1 << 7
        elif self.is_gone:
            generation ^= 1 << 3  # the same message of another epoch
        kind = [(int(self.is_short), 1), (self.kind, 2), (int(self.is_v2), 1), (int(self.has_tag), 1)]
        meta = packed([*kind, (generation, 10), (message, 32)])
        return {**beats, META_BEAT: meta}


def draw(rng: random.Random) -> Given:
    """Any."""
    kind, is_v2, has_tag = rng.randrange(3), rng.random() < 0.5, rng.random() < 0.4
    words = rng.choice([1, 2, 3, 251, 256, rng.randrange(1, 257)])
    header = bytearray(rng.randbytes(HEADER_BYTES[kind] + TAG * has_tag - EARLIER * is_v2))
    at = ETHERNET + TAG * has_tag  # IP's version: of a GRH's it is 6
    header[at] = 0x45 if is_v2 else 0x60 | header[at] & 15
    to = rng.choice([0, *[1 << port for port in range(PORTS)] * 3])
    return Given(
        kind, is_v2, has_tag, words, bytes(header), rng.randbytes(1024), rng.getrandbits(10), rng.getrandbits(32),
        rng.random() < 0.3, rng.random() < 0.3, rng.random() < 0.1, rng.random() < 0.9, to,
    )  # fmt: skip


class Bench:
    """Buffers and an arbiter before the builder, the address table beside it, an output after it."""

    def __init__(self, dut: Any, rng: random.Random, stall: float) -> None:
        self.dut, self.rng, self.stall = dut, rng, stall
        self.given: Given | None = None
        self.result = 0  # output of the result buffer in the next cycle
        self.finds: deque[tuple[bytes, int]] = deque()  # expected requests, and their answers
        self.answer: tuple[int, int] | None = None  # in so many cycles
        self.partial = b""
        self.left: list[tuple[int, bytes]] = []
        self.lost = 0

    async def cycle(
        self, step: int | None = None, looks: int = 0, checks: int = 0, is_kept: bool | None = None
    ) -> None:
        """One. Whether the sum is kept is random in cycles that do not ask."""
        dut, rng = self.dut, self.rng
        dut.is_kept_i.value = rng.getrandbits(1) if is_kept is None else int(is_kept)
        dut.steps_i.value, dut.step_i.value = int(step is not None), step or 0
        dut.looks_i.value, dut.checks_i.value = looks, checks
        dut.m_ready_i.value = int(rng.random() >= self.stall)
        dut.find_ready_i.value = int(rng.random() < 0.3)
        is_answered = self.answer is not None and self.answer[0] == 0
        dut.found_valid_i.value = int(is_answered)
        dut.found_ports_i.value = self.answer[1] if is_answered else rng.getrandbits(PORTS)
        await RisingEdge(dut.clk_i)
        if self.answer is not None:
            self.answer = None if is_answered else (self.answer[0] - 1, self.answer[1])
        self.look()

    def look(self) -> None:
        """Serve the requests to the buffers, and collect the output."""
        dut = self.dut
        if self.given:
            beat = self.given.beats().get(number(dut.header_beat_o), self.rng.getrandbits(64))
            other = self.rng.getrandbits(64)
            is_repeat = self.given.is_repeat
            dut.header_data_i.value, dut.repeat_data_i.value = (other, beat) if is_repeat else (beat, other)
        self.lost += int(dut.is_lost_o.value)
        if dut.find_valid_o.value and dut.find_ready_i.value:
            address, to = self.finds.popleft()
            assert number(dut.find_address_o).to_bytes(6, "big") == address
            self.answer = (2 + self.rng.choice([0, 0, 9]), to)
        if dut.m_valid_o.value and dut.m_ready_i.value:
            beat = number(dut.m_beat_o)
            extra, is_last = beat >> 64 & 7, beat >> 67 & 1
            self.partial += (beat & (1 << 64) - 1).to_bytes(BEAT, "little")[: extra + 1]
            if is_last:
                self.left.append((number(dut.m_ports_o), self.partial))
                self.partial = b""

    async def send(self, given: Given, until: int = 1000) -> None:
        """A turn of the arbiter, or its steps before `until`."""
        dut, rng = self.dut, self.rng
        while not dut.has_room_o.value:
            await self.cycle()
        self.given = given
        dut.packet_i.value, dut.is_repeat_i.value = given.packet, int(given.is_repeat)
        await self.cycle(looks=1)
        if given.is_kept and not given.is_gone:
            self.finds.append((given.header[:6], given.to))
        await self.cycle(checks=1)
        if not given.is_kept:
            await self.cycle(is_kept=False)
            return
        joint = 13 if given.kind == WITH_HEADER else 9
        is_late = bool(dut.is_late_o.value)
        assert is_late == (given.is_v2 or not given.has_tag or given.kind == PLAIN)
        first = 1 if is_late and rng.random() < 0.7 else 0
        for step in range(first, joint + (given.words - 1) // 2 + TAIL + 1):
            at = BEAT * (step - 1 - joint)
            beat = given.sum[at : at + BEAT] if 0 <= at < 1024 else b""
            dut.result_data_i.value = int.from_bytes(beat or rng.randbytes(BEAT), "little")
            await self.cycle(step=step, is_kept=True if step == first else None)
            if step + 1 >= until:
                return


@cocotb.test()
async def builds_what_was_summed(dut: Any) -> None:
    """All kinds and lengths, with fast and slow outputs."""
    rng = chance()
    await start(dut, looks_i=0, checks_i=0, steps_i=0, m_ready_i=0, find_ready_i=0, found_valid_i=0)
    for stall in (0.0, 0.3, 0.8):
        bench = Bench(dut, rng, stall)
        given = [draw(rng) for _ in range(FRAMES // 3)]
        for one in given:
            await bench.send(one)
            for _ in range(rng.choice([1, 1, 30])):
                await bench.cycle()
        kept = [one for one in given if one.is_kept]
        expected = [(one.to, one.frame) for one in kept if one.to and not one.is_gone]
        for _ in range(8000):
            await bench.cycle()
            if len(bench.left) == len(expected) and not bench.partial:
                break
        assert [to for to, _ in bench.left] == [to for to, _ in expected]
        for (_, found), (_, wanted) in zip(bench.left, expected, strict=True):
            assert found == wanted
        for _ in range(20):
            await bench.cycle()
        assert bench.lost == len(kept) - len(expected)


@cocotb.test()
async def ends_frames_at_a_reset(dut: Any) -> None:
    """Nothing of a frame that was being built leaves after a reset."""
    rng = chance()
    await start(dut)
    for until in range(6, 40, 2):
        bench = Bench(dut, rng, 0.0)
        given = next(one for one in iter(lambda: draw(rng), None) if one.is_kept and not one.is_gone)
        await bench.send(given, until)
        dut.rst_ni.value = dut.looks_i.value = dut.checks_i.value = dut.steps_i.value = 0
        dut.found_valid_i.value = 0
        await RisingEdge(dut.clk_i)
        dut.rst_ni.value = dut.m_ready_i.value = 1
        for _ in range(30):
            await RisingEdge(dut.clk_i)
            assert not dut.m_valid_o.value and not dut.find_valid_o.value
        bench = Bench(dut, rng, 0.0)
        given = next(one for one in iter(lambda: draw(rng), None) if one.to and one.is_kept and not one.is_gone)
        await bench.send(given)
        for _ in range(400):
            await bench.cycle()
        assert bench.left == [(given.to, given.frame)]


def test_frame_builder() -> None:
    """Four ports; buffers for few frames."""
    simulate("frame_builder", __file__, Ports=PORTS, Depth=512)
