"""Compares the Job Table with a model of RoceHandler::on_first and of RoceJob::bind and agree: Write Firsts of a few
jobs, epochs, ranks and messages, from ports that ask at once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from benches import chance, number, packed, simulate, start

PORTS, JOBS, COLUMNS, OWN_WORDS = 4, 2, 4, 5
HANDOVER_TICKS, IDLE_TICKS = 20, 50
FORWARDED, KEPT, HEADER, EPOCH, RANK, SPOOFED, ORDER, MISMATCH, BUSY, STALE, JOBS_FULL = (
    0,
    1,
    7,
    8,
    9,
    10,
    11,
    12,
    16,
    17,
    18,
)
# In frame_info_t: all, the fields after the aggregation header, and where the version is.
INFO_BITS, BEHIND_BITS, VERSION_AT, FACTS_BITS = 601, 15, 248, 10


@dataclass(frozen=True)
class Header:
    """The fields of a Write First, and its handler's facts."""

    version: int
    job: int
    epoch: int
    rank: int
    workers: int  # 0: it does not say
    message: int
    way: tuple[int, int, int]  # is_one_way, gives, other
    length: int
    format: int
    ends: int
    facts: tuple[int, int, int, int, int, int]  # is_taken, is_bad, has_other_rank, is_spoofed, is_next, verdict

    @property
    def info(self) -> int:
        """`frame_info_t`."""
        fields = [(self.length, 32), (self.message, 32), (0, 16), (self.rank_field, 16)]
        fields += [(self.epoch, 16), (self.job, 16)]
        flags = self.workers << 3 | self.way[0] << 2 | self.ends
        header = packed([*fields, (flags, 8), (self.format, 4), (1, 4)]) << BEHIND_BITS
        return header | (self.version - 1) << VERSION_AT

    @property
    def rank_field(self) -> int:
        """With the owner's rank, or the giver's."""
        is_one_way, gives, other = self.way
        return is_one_way * (gives << 15 | other << 8) | self.rank

    @property
    def shape(self) -> tuple[int, int, bool, int, tuple[int, int, int]]:
        """The fields that workers must agree on."""
        return self.length // 4, self.format, self.workers > 0, self.ends, self.way

    def leaves_short(self, workers: int) -> bool:
        """Whether the rank's packets leave short: to its right neighbour."""
        is_one_way, gives, other = self.way
        is_for_other = (self.rank + 1) % workers == other
        return bool(is_one_way) and is_for_other == bool(gives)

    @property
    def packets(self) -> int:
        """Of the message."""
        return -(-(self.length // 4 + OWN_WORDS) // 256)


@dataclass
class Column:
    """The message in that column."""

    header: Header
    folded: int = 0


@dataclass
class Job:
    """In one epoch."""

    version: int
    number: int
    epoch: int
    ports: int
    is_float: int
    port_of_rank: dict[int, int] = field(default_factory=dict)
    columns: dict[int, Column] = field(default_factory=dict)
    has_summed: bool = False


@dataclass(frozen=True)
class Answer:
    """The table's answer; `told` is a rank with a mismatch, and the number of workers if the sender says another."""

    verdict: int
    binds: bool = False
    told: int | None = None
    shortens: bool = False  # of VerdictKept


class Model:
    """The model."""

    def __init__(self) -> None:
        self.jobs: list[Job | None] = [None] * JOBS
        self.generations = [0] * JOBS
        self.default, self.exceptions = (1, (1 << PORTS) - 1), dict[int, tuple[int, int]]()

    def ask(self, port: int, header: Header) -> Answer:
        """A Write First from a port."""
        named = header.version, header.job
        slot = next((i for i, job in enumerate(self.jobs) if job and (job.version, job.number) == named), None)
        job = self.jobs[slot] if slot is not None else None
        is_float, ports = self.exceptions.get(header.job, self.default)
        if job is None or 0 < (header.epoch - job.epoch) & 0xFFFF < 0x8000:
            if not ports >> port & 1:
                return Answer(FORWARDED)
            if slot is None:
                free = [i for i, one in enumerate(self.jobs) if one is None]
                if not free:
                    return Answer(JOBS_FULL)
                slot = free[-1]
            job = self.jobs[slot] = Job(*named, header.epoch, ports, is_float)
            self.generations[slot] += 1
        elif not job.ports >> port & 1 or header.epoch != job.epoch:
            return Answer(EPOCH if job.ports >> port & 1 else FORWARDED)
        return self.bind(port, job, header)

    def bind(self, port: int, job: Job, header: Header) -> Answer:
        """Bind a connection to its rank."""
        is_taken, is_bad, has_other_rank, is_spoofed, is_next, verdict = header.facts
        if is_taken or is_bad:
            return Answer(SPOOFED if is_taken else HEADER)
        if header.workers not in (0, job.ports.bit_count()):
            return Answer(RANK, told=job.ports.bit_count())
        if header.way[2] >= job.ports.bit_count():
            return Answer(HEADER)
        if header.rank >= job.ports.bit_count() or job.port_of_rank.get(header.rank, port) != port or has_other_rank:
            return Answer(RANK)
        if is_spoofed:
            return Answer(SPOOFED)
        job.port_of_rank[header.rank] = port
        answer = self.agree(job, header) if is_next else Answer(verdict, binds=True)
        return replace(answer, shortens=header.leaves_short(job.ports.bit_count()))

    def agree(self, job: Job, header: Header) -> Answer:
        """Compare with the messages that other ranks began."""
        column = job.columns.get(header.message % COLUMNS)
        if column and column.header.message == header.message:
            is_same = column.header.shape == header.shape
            return Answer(KEPT, True) if is_same else Answer(MISMATCH, True, column.header.rank)
        if column and (header.message - column.header.message) >> 31 & 1:
            return Answer(STALE, True)
        if column and column.folded < column.header.packets:
            return Answer(BUSY, True)
        job.columns[header.message % COLUMNS] = Column(header)
        return Answer(KEPT, True)


def draw(rng: random.Random, model: Model) -> Header:
    """A Write First, often right and of an existing job."""
    version, job = rng.choice([(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)])
    there = next((one for one in model.jobs if one and (one.version, one.number) == (version, job)), None)
    workers = there.ports.bit_count() if there else PORTS
    epoch = (there.epoch if there else rng.choice([0, 0xFFFF])) + rng.choice([0] * 12 + [1, -1])
    length = rng.choice([1008, 1008, 1008, 2044, 131052])
    wrong = [int(rng.random() < 0.05) for _ in range(4)]
    is_next = int(rng.random() < 0.8)
    facts = (wrong[0], wrong[1], wrong[2], wrong[3], is_next, rng.choice([KEPT, ORDER, STALE, MISMATCH]))
    message = rng.randrange(12) - 4
    # Often that of the others: by the message's number.
    way = rng.choice([(0, 0, 0), (1, rng.randrange(2), rng.choice([0, 1, 2, 3, rng.randrange(32)]))])
    if rng.random() < 0.85:
        way = (0, 0, 0) if message % 3 == 0 else (1, message % 2, message % workers)
    return Header(
        version, job, epoch & 0xFFFF, rng.choice([0, 1, 2, 3, rng.randrange(8)]),
        rng.choice([0] * 6 + [workers] * 2 + [rng.randrange(32)]) * (version - 1),
        message & 0xFFFF_FFFF, way, length, rng.choice([0, 0, 0, 1]), int(rng.random() < 0.1), facts,
    )  # fmt: skip


def configuration(model: Model) -> int:
    """`config_t`."""
    rows = [(1, adds, job, ports) for job, (adds, ports) in model.exceptions.items()] + [(0, 0, 0, 0)] * 4
    table = [pair for row in rows[:4] for pair in zip(row, (1, 1, 16, 16), strict=True)]
    return packed([(model.default[0], 1), (model.default[1], 16), *table, (0, 32)])


class Bench:
    """Handlers that send requests and hold them."""

    def __init__(self, dut: Any, rng: random.Random) -> None:
        self.dut, self.rng, self.model = dut, rng, Model()
        self.asked: list[Header | None] = [None] * PORTS
        self.seen: Counter[int] = Counter()
        self.short = 0

    async def cycle(self, asks: float) -> None:
        """One."""
        dut, rng = self.dut, self.rng
        if not any(self.asked) and rng.random() < 0.02:
            self.model.default = rng.randrange(2), rng.choice([0b1111, 0b0111, 0b1010])
            self.model.exceptions = {2: (rng.randrange(2), rng.randrange(1, 1 << PORTS))} if rng.random() < 0.5 else {}
            dut.config_i.value = configuration(self.model)
        for port in range(PORTS):
            if self.asked[port] is None and rng.random() < asks:
                self.asked[port] = draw(rng, self.model)
        facts = [packed(list(zip(one.facts, (1, 1, 1, 1, 1, 5), strict=True))) if one else 0 for one in self.asked]
        dut.valid_i.value = sum(1 << port for port, one in enumerate(self.asked) if one)
        dut.info_i.value = sum(one.info << INFO_BITS * port for port, one in enumerate(self.asked) if one)
        dut.facts_i.value = sum(one << FACTS_BITS * port for port, one in enumerate(facts))
        dut.is_pending_i.value = rng.getrandbits(JOBS) if rng.random() < 0.003 else 0
        folded = self.fold()
        await RisingEdge(dut.clk_i)
        self.look()
        if folded:
            job, column = folded
            job.has_summed = True
            column.folded += 1

    def fold(self) -> tuple[Job, Column] | None:
        """Sometimes a packet of a message is folded."""
        dut, rng = self.dut, self.rng
        found = [
            (slot, job, column)
            for slot, job in enumerate(self.model.jobs)
            if job
            for column, one in job.columns.items()
            if one.folded < one.header.packets
        ]
        chosen = rng.choice(found) if found and rng.random() < 0.2 and not self.is_beginning else None
        dut.folded_i.value = int(chosen is not None)
        if chosen is None:
            return None
        slot, job, column = chosen
        one = job.columns[column]
        place = column << 7 | one.folded % 128
        dut.folded_packet_i.value = packed([(slot, 4), (0, 10), (place, 9), (one.header.message, 32), (0, 8), (0, 3)])
        return job, one

    @property
    def is_beginning(self) -> bool:
        """An epoch may begin in this cycle or the next: packets folded then belong to the epoch before."""
        return number(self.dut.state_q) != 0

    def look(self) -> None:
        """Check an answer, and the visible state after it."""
        dut, model = self.dut, self.model
        done = number(dut.done_o)
        if not done:
            return
        port = done.bit_length() - 1
        header = self.asked[port]
        assert header is not None and done == 1 << port
        wanted = model.ask(port, header)
        assert (number(dut.verdict_o), bool(dut.binds_o.value)) == (wanted.verdict, wanted.binds), (port, header)
        told = {RANK: dut.miscounts_o, MISMATCH: dut.differs_o}.get(wanted.verdict)
        if told is not None and (wanted.verdict == RANK or wanted.told is not None):
            assert bool(told.value) == (wanted.told is not None)
        if wanted.told is not None:
            assert number(dut.told_o) == wanted.told
        if wanted.verdict == KEPT:
            assert bool(dut.shortens_o.value) == wanted.shortens
            self.short += wanted.shortens
        self.seen[wanted.verdict] += 1
        self.asked[port] = None

    def part(self, slot: int, name: str, bits: int) -> int:
        """A job's part of an output."""
        return number(getattr(self.dut, name)) >> bits * slot & (1 << bits) - 1

    async def compare(self) -> None:
        """Check the outputs of every job without requests, a cycle after the last packet was folded."""
        self.dut.folded_i.value = 0
        await RisingEdge(self.dut.clk_i)
        model = self.model
        for slot, job in enumerate(model.jobs):
            assert self.part(slot, "generation_o", 10) == model.generations[slot]
            if job is None:
                continue
            assert (self.part(slot, "number_o", 16), self.part(slot, "epoch_o", 16)) == (job.number, job.epoch)
            assert (self.part(slot, "ports_o", PORTS), self.part(slot, "is_float_o", 1)) == (job.ports, job.is_float)
            assert self.part(slot, "has_summed_o", 1) == job.has_summed
            assert self.part(slot, "ranks_o", PORTS) == (1 << job.ports.bit_count()) - 1
            assert self.part(slot, "has_rank_o", PORTS) == sum(1 << rank for rank in job.port_of_rank)
            for index, column in job.columns.items():
                is_one_way, gives, other = column.header.way
                adds = self.part(slot, "adds_o", COLUMNS * PORTS) >> PORTS * index & (1 << PORTS) - 1
                assert adds == (1 << other if is_one_way and gives else (1 << PORTS) - 1)
            for rank, port in job.port_of_rank.items():
                assert self.part(slot, "port_of_rank_o", 2 * PORTS) >> 2 * rank & 3 == port


@cocotb.test()
async def follows_the_law(dut: Any) -> None:
    """More jobs than places, and epochs across the wrap; then all jobs are silent and are removed."""
    rng = chance()
    bench = Bench(dut, rng)
    await start(
        dut, tick_i=0, valid_i=0, seen_i=0, is_pending_i=0, folded_i=0, folded_packet_i=0,
        config_i=configuration(bench.model),
    )  # fmt: skip
    for _ in range(120):
        for _ in range(150):
            await bench.cycle(asks=0.1)
        if rng.random() < 0.3:  # one job ends: a place for another
            await bench.cycle(asks=0)
        while any(bench.asked):
            await bench.cycle(asks=0)
        await bench.cycle(asks=0)
        await bench.compare()
        if rng.random() < 0.2:
            await forget(bench, rng.randrange(JOBS))
    dut._log.info("verdicts: %s, %d short", dict(bench.seen), bench.short)
    assert bench.short > 0
    assert {FORWARDED, KEPT, HEADER, EPOCH, RANK, SPOOFED, ORDER, MISMATCH, BUSY, STALE, JOBS_FULL} == set(bench.seen)


async def forget(bench: Bench, heard: int) -> None:
    """Time passes with frames of only one job."""
    dut, model = bench.dut, bench.model
    for tick in range(IDLE_TICKS):
        dut.tick_i.value, dut.seen_i.value = 1, 1 << JOBS * bench.rng.randrange(PORTS) + heard
        await bench.cycle(asks=0)
        if tick > 1:
            recent = number(dut.is_recent_o)
            assert recent >> heard & 1
            assert recent >> 1 - heard & 1 == (tick < HANDOVER_TICKS) or bench.model.jobs[1 - heard] is None
    dut.tick_i.value = 0
    for _ in range(4):
        await bench.cycle(asks=0)
    dut.seen_i.value = 0
    if model.jobs[1 - heard]:
        model.jobs[1 - heard] = None
        model.generations[1 - heard] += 1
    await bench.cycle(asks=0)
    await bench.compare()


def test_job_table() -> None:
    """Four ports, places for two jobs."""
    simulate("job_table", __file__, Ports=PORTS, Jobs=JOBS, HandoverTicks=HANDOVER_TICKS, IdleTicks=IDLE_TICKS)
