"""The Port Learning Stage of one port: its requests, the learnt addresses, and the routes and marks of frames, for any
delay of the table and the next stage."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge

from benches import PAUSES, chance, number, simulate, start
from ethernet import FRAME_MAX, beats_of
from marks import headers_of, marks_of, types_of

PORTS, FIFO_BEATS = 4, 512
FRAMES_MAX = FIFO_BEATS // 16
EVERYWHERE, NOWHERE = (1 << PORTS) - 1, 0
BROADCAST, BRIDGE, NOBODY = b"\xff" * 6, bytes.fromhex("0180c200000e"), bytes(6)
NEIGHBOUR = bytes.fromhex("020000000001")


def draw(rng: Any) -> tuple[bytes, bool]:
    """A frame, and whether its FCS was wrong."""
    address = lambda: bytes([2, 0, 0, 0, 0, rng.randrange(8)])  # noqa: E731
    to = rng.choice([address()] * 6 + [BROADCAST, BRIDGE])
    source = rng.choice([address()] * 6 + [NOBODY, b"\x03" + address()[1:]])
    sizes = [60, 60, 100, rng.randrange(14, 300), rng.randrange(1, 14), FRAME_MAX, FRAME_MAX + rng.randrange(1, 30)]
    size = rng.choice(sizes)
    return (to + source + headers_of(rng) + rng.randbytes(size))[:size], rng.random() < 0.1


ANSWER_CYCLES = 20  # more than a question waits for its answer
COUNTED = ("filtered", "oversize", "bad_source", "runt", "no_room", "damaged")  # arrival_t, from the lowest bit


class Neighbours:
    """The table and the next stage: they record requests, learnt addresses and frames."""

    def __init__(self, dut: Any, rng: Any, stall: float) -> None:
        """`stall`: the probability that a cycle accepts no beat."""
        self.dut, self.rng, self.stall = dut, rng, stall
        self.table = {bytes([2, 0, 0, 0, 0, i]): rng.choice([0, 1, 2, 4, 8]) for i in range(8)}  # 0: unknown
        self.asked: list[bytes] = []
        self.learned: list[bytes] = []
        self.counted = dict.fromkeys(COUNTED, 0)
        self.taken: list[tuple[bytes, int, int, bool]] = []
        self.marks: list[list[int]] = []
        for task in (self._find(), self._learn(), self._count(), self._take()):
            cocotb.start_soon(task)

    async def _find(self) -> None:
        dut = self.dut
        while True:
            await FallingEdge(dut.clk_i)
            dut.found_valid_i.value = 0
            if not dut.find_valid_o.value:
                continue
            for _ in range(self.rng.randrange(8)):
                await FallingEdge(dut.clk_i)
            self.asked.append(number(dut.find_address_o).to_bytes(6, "big"))
            dut.find_ready_i.value = 1
            await FallingEdge(dut.clk_i)
            dut.find_ready_i.value = 0
            await FallingEdge(dut.clk_i)
            dut.found_ports_i.value, dut.found_valid_i.value = self.table[self.asked[-1]], 1

    async def _learn(self) -> None:
        while True:
            self.dut.learn_ready_i.value = int(self.rng.random() < 0.5)
            await RisingEdge(self.dut.clk_i)
            if self.dut.learn_valid_o.value and self.dut.learn_ready_i.value:
                self.learned.append(number(self.dut.learn_address_o).to_bytes(6, "big"))

    async def _count(self) -> None:
        while True:
            await RisingEdge(self.dut.clk_i)
            event = number(self.dut.arrival_o)
            for bit, name in enumerate(COUNTED):
                self.counted[name] += event >> bit & 1

    async def _take(self) -> None:
        frame, dut = b"", self.dut
        marks: list[int] = []
        while True:
            dut.m_ready_i.value = int(self.rng.random() >= self.stall)
            await RisingEdge(dut.clk_i)
            if not (dut.m_valid_o.value and dut.m_ready_i.value):
                continue
            beat = number(dut.m_beat_o)
            last = beat >> 67 & 1
            frame += (beat & (1 << 64) - 1).to_bytes(8, "little")[: (beat >> 64 & 7) + 1 if last else 8]
            marks.append(number(dut.m_mark_o))
            if last:
                self.taken.append((frame, number(dut.m_ports_o), int(dut.m_is_known_o.value), bool(beat >> 68)))
                self.marks.append(marks)
                frame, marks = b"", []


async def feed(dut: Any, rng: Any, idle: float, given: list[tuple[bytes, bool]]) -> list[bool]:
    """Send all frames, some back to back; returns the rejected frames."""
    refused = []
    for frame, is_damaged in given:
        begins = True
        for data, keep, last, error in beats_of(frame, is_damaged):
            while rng.random() < idle:
                await RisingEdge(dut.clk_i)
            extra = keep.bit_count() - 1 if last else 0
            dut.s_beat_i.value, dut.s_valid_i.value = error << 68 | last << 67 | extra << 64 | data, 1
            dut.s_types_i.value = types_of(data)
            await RisingEdge(dut.clk_i)
            while not dut.s_ready_o.value:
                await RisingEdge(dut.clk_i)
            dut.s_valid_i.value = 0
            if begins:
                refused.append(bool(number(dut.arrival_o) >> COUNTED.index("no_room") & 1))
            begins = False
        for _ in range(rng.choice([0, 0, 30])):
            await RisingEdge(dut.clk_i)
    return refused


def expect(frame: bytes, is_damaged: bool, table: dict[bytes, int]) -> tuple[tuple[bytes, int, int, bool], list[bool]]:
    """The accepted part of a frame, and its counted events."""
    to, source = frame[:6], frame[6:12]
    is_runt, is_long = len(frame) < 14, len(frame) > FRAME_MAX
    is_bad = not is_runt and (source == NOBODY or source[0] & 1 == 1)
    is_reserved = not is_runt and not is_bad and to == BRIDGE
    ends, is_group = is_runt or is_bad or is_reserved, to[0] & 1 == 1
    known = 0 if ends or is_group else table[to]
    ports = NOWHERE if ends else known or EVERYWHERE
    events = [is_reserved, is_long, is_bad, is_runt, False, is_damaged]
    return (frame[: FRAME_MAX + 1], ports, int(known > 0), is_damaged or is_long), events


@cocotb.test()
@cocotb.parametrize((("idle", "stall"), PAUSES))
async def analyzes(dut: Any, idle: float, stall: float) -> None:
    """Random frames of all kinds and lengths."""
    rng = chance()
    await start(dut, s_valid_i=0, find_ready_i=0, found_valid_i=0, learn_ready_i=0, m_ready_i=0)
    neighbours = Neighbours(dut, rng, stall)
    given = [draw(rng) for _ in range(120)]
    refused = await feed(dut, rng, idle, given)
    for _ in range(6000):
        await RisingEdge(dut.clk_i)
        if len(neighbours.taken) == len(given) - sum(refused):
            break
    for _ in range(ANSWER_CYCLES):  # the last frame may have left without its answer
        await RisingEdge(dut.clk_i)
    assert bool(sum(refused)) == (stall > idle) or idle == stall > 0
    expected = [expect(*one, neighbours.table) for one, is_out in zip(given, refused, strict=True) if not is_out]
    wanted = [what for what, _ in expected]
    assert neighbours.taken == wanted
    for (frame, *_), marks in zip(wanted, neighbours.marks, strict=True):
        told = marks_of(frame)
        assert marks[: len(told)] == told, frame
    # The question goes out with a frame's first beat, also if the second one shows that no answer is needed.
    assert neighbours.asked == [frame[:6] for frame, *_ in wanted if len(frame) > 8 and not frame[0] & 1]
    totals = [sum(events[i] for _, events in expected) for i in range(len(COUNTED))]
    totals[COUNTED.index("no_room")] = sum(refused)
    totals[-1] += sum(is_damaged for (_, is_damaged), is_out in zip(given, refused, strict=True) if is_out)
    assert list(neighbours.counted.values()) == totals
    good = [what for what, (_, _, is_bad, is_runt, _, _) in expected if not (is_bad or is_runt)]
    heard = [frame[6:12] for frame, _, _, is_broken in good if not is_broken]
    rest = iter(heard)  # some addresses are not learnt if the next frame comes too soon; no address is invented
    assert all(any(one == other for other in rest) for one in neighbours.learned)
    assert len(neighbours.learned) > len(heard) / 2


@cocotb.test()
async def never_waits_for_the_next_stage(dut: Any) -> None:
    """A MAC cannot wait. Behind a stage that takes nothing, the neighbour is told to pause while there is room for what
    it sends until then; later frames are dropped whole."""
    rng = chance()
    await start(dut, s_valid_i=0, find_ready_i=0, found_valid_i=0, learn_ready_i=0, m_ready_i=0)
    neighbours = Neighbours(dut, rng, stall=1)
    frames = [BROADCAST + NEIGHBOUR + rng.randbytes(48) for _ in range(2 * FRAMES_MAX)]
    fills = []
    for frame in frames:
        for data, keep, last, _ in beats_of(frame):
            dut.s_beat_i.value, dut.s_valid_i.value = last << 67 | (keep.bit_count() - 1) * last << 64 | data, 1
            dut.s_types_i.value = types_of(data)
            await RisingEdge(dut.clk_i)
            assert dut.s_ready_o.value, "the MAC would have to wait"
        fills.append(int(dut.is_filling_o.value))
        dut.s_valid_i.value = 0
        await RisingEdge(dut.clk_i)
    taken = len(frames) - neighbours.counted["no_room"]
    assert taken >= FRAMES_MAX - 2
    assert fills.index(1) <= FRAMES_MAX / 4
    neighbours.stall = 0
    for _ in range(20 * taken):
        await RisingEdge(dut.clk_i)
    assert [frame for frame, *_ in neighbours.taken] == frames[:taken]
    assert neighbours.counted["damaged"] == 0
    assert dut.is_empty_o.value


def test_port_analyzer() -> None:
    """Four ports; the Port FIFO holds two frames."""
    simulate("port_analyzer", __file__, Ports=PORTS, FifoBeats=FIFO_BEATS)
