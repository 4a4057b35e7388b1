"""Compares places that collect and keep sums with a model of RoceJob::contribute, for any requests in any order."""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from benches import chance, number, packed, simulate, start

PORTS, JOBS, PLACES = 4, 2, 512
KEPT, FOLDED, ANSWERED, WAITING, EPOCH, BLOCK, BUSY, STALE = 1, 2, 3, 4, 8, 15, 16, 17
PACKET_BITS, GENERATIONS = 66, 1 << 10
FORGOTTEN = 0xFFFF_FFFF


@dataclass(frozen=True)
class Packet:
    """`packet_t`; whether its blocks are malformed; and whether it is asked about early."""

    job: int
    generation: int
    place: int
    message: int
    is_bad: bool = False
    is_early: bool = False

    @property
    def bits(self) -> int:
        """The value of the signal."""
        return packed([(self.job, 4), (self.generation, 10), (self.place, 9), (self.message, 32), (7, 8), (1, 3)])


@dataclass
class Place:
    """The model's state of a place."""

    generation: int = 0
    arrived: set[int] = field(default_factory=set)
    message: int = 0
    sum_of: int | None = None


def is_older(a: int, b: int) -> bool:
    """The distance modulo 2^32."""
    return (a - b) >> 31 & 1 == 1


class Model:
    """The model: it answers one request after the other."""

    def __init__(self, folding: list[set[int]]) -> None:
        self.folding = folding
        self.places: dict[tuple[int, int], Place] = {}

    def place(self, packet: Packet, generation: int) -> Place:
        """The state of a place in this epoch."""
        there = self.places.setdefault((packet.job, packet.place), Place())
        if there.generation != generation:
            there = self.places[packet.job, packet.place] = Place(generation)
        return there

    def judge(self, port: int, packet: Packet, generation: int) -> int:
        """The verdict on a contribution."""
        if packet.generation != generation:
            return EPOCH
        place = self.place(packet, generation)
        has_sum, gathers_another = place.sum_of is not None, place.arrived and place.message != packet.message
        if has_sum and not is_older(place.sum_of or 0, packet.message):
            verdict = ANSWERED if place.sum_of == packet.message else STALE
        elif gathers_another:
            verdict = STALE if is_older(packet.message, place.message) else BUSY
        elif port in place.arrived:
            verdict = WAITING
        elif packet.is_bad:
            verdict = BLOCK
        elif packet.is_early:
            verdict = FOLDED if place.arrived | {port} == self.folding[packet.job] else KEPT
        else:
            verdict = self.keep(port, packet, place)
        return verdict

    def keep(self, port: int, packet: Packet, place: Place) -> int:
        """Count a new contribution."""
        place.message = packet.message
        place.arrived.add(port)
        if place.arrived != self.folding[packet.job]:
            return KEPT
        place.sum_of = None
        return FOLDED

    def made(self, packet: Packet, generation: int) -> None:
        """Its sum is sent: it is kept if its epoch is still current."""
        if packet.generation == generation:
            place = self.place(packet, generation)
            place.arrived, place.sum_of = set(), packet.message


class Bench:
    """Handlers that send requests, and a processor that folds and sends at its own pace."""

    def __init__(self, dut: Any, rng: random.Random) -> None:
        self.dut, self.rng = dut, rng
        self.model = Model([{0, 1, 2, 3}, {0, 2, 3}])
        self.generations = [0, GENERATIONS - 1]  # a place that is clear is of no generation with contributions
        self.history: list[tuple[int, ...]] = [tuple(self.generations)]  # of generations, by cycle
        self.asked: list[Packet | None] = [None] * PORTS
        self.served: list[Counter[int]] = [Counter() for _ in range(PORTS)]  # while a port asks: answers to the others
        self.folds: deque[Packet] = deque()  # announced, and not made yet
        self.mades: deque[tuple[int, Packet]] = deque()  # by the cycle of their acceptance
        self.making: Packet | None = None
        self.cycles = self.aged = self.early = 0
        self.was_judged: int | None = None  # a cycle before it is answered
        self.seen: Counter[int] = Counter()
        self.folded: Counter[Packet] = Counter()

    async def cycle(self, asks: float = 0.5) -> None:
        """One cycle: a port may send a request; answers are compared."""
        dut, rng = self.dut, self.rng
        for port in range(PORTS):
            if self.asked[port] is None and rng.random() < asks:
                self.asked[port] = self.draw(port)
        if self.making is None and self.folds and rng.random() < 0.05:
            self.making = self.folds.popleft()
        questions = [packet.bits if packet else 0 for packet in self.asked]
        dut.packet_i.value = sum(bits << PACKET_BITS * port for port, bits in enumerate(questions))
        dut.valid_i.value = sum(1 << port for port, packet in enumerate(self.asked) if packet)
        dut.is_coming_i.value = int(rng.random() < 0.3)
        dut.is_early_i.value = sum(1 << port for port, packet in enumerate(self.asked) if packet and packet.is_early)
        dut.is_bad_i.value = sum(1 << port for port, packet in enumerate(self.asked) if packet and packet.is_bad)
        dut.fold_ready_i.value = int(rng.random() < 0.9)
        dut.made_valid_i.value = int(self.making is not None)
        dut.made_i.value = self.making.bits if self.making else 0
        dut.generation_i.value = self.generations[1] << 10 | self.generations[0]
        await RisingEdge(dut.clk_i)
        self.cycles += 1
        self.history.append(tuple(self.generations))
        self.look()

    def draw(self, port: int) -> Packet | None:
        """A request that often fits one of a few places."""
        rng = self.rng
        job = rng.choice([job for job in range(JOBS) if port in self.model.folding[job]])
        place = rng.choice([0, 1, 128, 511])
        there = self.model.places.get((job, place), Place())
        latest = there.message if there.arrived or there.sum_of is None else there.sum_of + 4
        message = (latest + rng.choice([0] * 12 + [-4, -4, 4])) & 0xFFFF_FFFF
        generation = (self.generations[job] - (rng.random() < 0.05)) % GENERATIONS
        is_early = rng.random() < 0.3
        return Packet(job, generation, place, message, not is_early and rng.random() < 0.1, is_early)

    def look(self) -> None:
        """Answers come three cycles after their begin, by the epoch of the cycle before."""
        dut = self.dut
        if self.making and dut.made_ready_o.value:
            self.mades.append((self.cycles, self.making))
            self.making = None
        self.aged += int(dut.aged_o.value)
        if dut.folded_valid_o.value:
            self.folded[self.packet_of(number(dut.folded_o))] += 1
        done = number(dut.done_o)
        if done:
            while self.mades and self.mades[0][0] < self.cycles - 3:
                self.make()
            port = done.bit_length() - 1
            packet = self.asked[port]
            assert packet is not None and done == 1 << port
            expected = self.model.judge(port, packet, self.history[self.cycles - 1][packet.job])
            assert number(dut.verdict_o) == expected, (packet, expected)
            if expected == WAITING:
                arrived = self.model.places[packet.job, packet.place].arrived
                assert number(dut.arrived_o) == sum(1 << one for one in arrived)
                assert bool(dut.is_missing_o.value) == (arrived != self.model.folding[packet.job])
            assert self.was_judged == (None if packet.is_early else packet.bits)
            assert bool(dut.early_valid_o.value) == (packet.is_early and expected == FOLDED)
            if dut.early_valid_o.value:
                assert number(dut.folded_o) == packet.bits
                self.early += 1
            self.seen[expected] += not packet.is_early
            self.asked[port] = None
            self.check_turn(port)
        else:
            assert not dut.early_valid_o.value
        self.was_judged = number(dut.fold_o) if dut.judged_o.value else None
        if dut.fold_valid_o.value:  # there was space at the time of the request
            self.folds.append(self.packet_of(number(dut.fold_o)))

    def check_turn(self, port: int) -> None:
        """Ports take turns: none is served often while another one asks."""
        self.served[port].clear()
        for other, packet in enumerate(self.asked):
            self.served[other][port] += packet is not None
            assert self.served[other][port] <= 2, f"port {port} was served again and again while {other} asked"

    def make(self) -> None:
        """Send the oldest sum."""
        at, packet = self.mades.popleft()
        self.model.made(packet, self.history[at + 2][packet.job])

    def packet_of(self, bits: int) -> Packet:
        """The outputs of the module."""
        return Packet(bits >> 62, bits >> 52 & 0x3FF, bits >> 43 & 0x1FF, bits >> 11 & 0xFFFF_FFFF)


@cocotb.test()
async def follows_the_law(dut: Any) -> None:
    """Two jobs and their epochs; then waiting places are released when they are old."""
    rng = chance()
    bench = Bench(dut, rng)
    await start(
        dut, tick_i=0, age_limit_i=FORGOTTEN, generation_i=0, valid_i=0, made_valid_i=0, fold_ready_i=0,
        ports_i=0b1101 << PORTS | 0b1111, tag_address_i=0,
    )  # fmt: skip
    for _ in range(JOBS * PLACES + 8):
        await RisingEdge(dut.clk_i)
    for _ in range(12_000):
        if rng.random() < 0.003:
            job = rng.randrange(JOBS)
            bench.generations[job] = (bench.generations[job] + 1) % GENERATIONS
        await bench.cycle()
    for _ in range(2000):  # until all work is finished
        await bench.cycle(asks=0)
    assert not (bench.folds or bench.making or any(bench.asked))
    dut._log.info("verdicts: %s, %d sums kept", dict(bench.seen), bench.folded.total())
    assert {KEPT, FOLDED, ANSWERED, WAITING, EPOCH, BLOCK, BUSY, STALE} <= set(bench.seen)
    assert 0 < bench.folded.total() <= bench.seen[FOLDED] and bench.early > 0

    await bench.cycle(asks=0)
    while bench.mades:
        bench.make()
    sweep = 3 * JOBS * PLACES  # cycles, enough for all places
    dut.tick_i.value, dut.age_limit_i.value = 1, sweep + 10
    partial = [
        place
        for (job, _), place in bench.model.places.items()
        if place.arrived and place.arrived != bench.model.folding[job] and place.generation == bench.generations[job]
    ]
    for _ in range(sweep):
        await bench.cycle(asks=0)
    assert bench.aged == 0
    for _ in range(2 * sweep):
        await bench.cycle(asks=0)
    assert bench.aged == len(partial) > 0


def test_aggregation_status() -> None:
    """Two jobs."""
    simulate("aggregation_status", __file__, Ports=PORTS, Jobs=JOBS)
