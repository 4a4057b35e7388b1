"""Folds two workers' numbers, waits with a place whose sum is still being sent, and knows which sums were sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from benches import chance, number, packed, simulate, start

PORTS, PLACES, COLUMNS, PACKET_BITS = 2, 512, 4, 66
WORDS, LONG_WORDS, INT32 = 8, 128, 0
KEPT, FOLDED, ANSWERED, BLOCK = 1, 2, 3, 15
PLACE = 5


def packet(place: int, message: int, words: int = WORDS) -> int:
    """`packet_t` of job 0 in its first epoch."""
    return packed([(0, 4), (0, 10), (place, 9), (message, 32), (words - 1, 8), (INT32, 3)])


class Bench:
    """Payload buffers with numbers of their own for every place, and the results that are written."""

    def __init__(self, dut: Any, rng: Any) -> None:
        self.dut = dut
        self.payload = {(port, at): rng.getrandbits(64) for port in range(PORTS) for at in range(PLACES * 128)}
        self.results: dict[int, int] = {}
        self.told: list[int] = []  # sums, as packets
        self.cycles = 0
        self.told_at: list[int] = []  # cycles
        self.written_at: dict[int, int] = {}  # by address
        self.made = 0  # so many of them were sent
        self.reads: list[int | None] = [None]  # what is read comes two cycles later

    async def cycle(self) -> None:
        """One."""
        dut = self.dut
        await RisingEdge(dut.clk_i)
        address = self.reads.pop(0)
        if address is not None:
            data = [self.payload[port, address] for port in range(PORTS)]
            dut.payload_data_i.value = sum(value << 64 * port for port, value in enumerate(data))
        self.reads.append(number(dut.payload_address_o) if dut.payload_read_o.value else None)
        if dut.result_write_o.value:
            self.results[number(dut.result_address_o)] = number(dut.result_data_o)
            self.written_at[number(dut.result_address_o)] = self.cycles
        if dut.sum_valid_o.value:
            self.told.append(number(dut.sum_o))
            self.told_at.append(self.cycles)
        self.cycles += 1

    async def contribute(self, place: int, message: int) -> list[int]:
        """Both ports ask, until both are answered; returns the verdicts."""
        dut = self.dut
        left = (1 << PORTS) - 1
        verdicts = []
        dut.packet_i.value = sum(packet(place, message) << PACKET_BITS * port for port in range(PORTS))
        for _ in range(100):
            dut.valid_i.value = left
            await self.cycle()
            if dut.done_o.value:
                verdicts.append(number(dut.verdict_o))
            left &= ~number(dut.done_o)
            if not left:
                break
        dut.valid_i.value = 0
        assert not left
        return verdicts

    async def ask(self, port: int, bits: int, is_early: bool = False, is_bad: bool = False) -> int:
        """One port asks until it is answered; returns the verdict."""
        dut = self.dut
        dut.packet_i.value = bits << PACKET_BITS * port
        dut.valid_i.value = 1 << port
        dut.is_early_i.value, dut.is_bad_i.value = int(is_early) << port, int(is_bad) << port
        for _ in range(100):
            await self.cycle()
            if dut.done_o.value:
                break
        assert dut.done_o.value
        dut.valid_i.value = 0
        return number(dut.verdict_o)

    def expected(self, place: int, words: int = WORDS) -> dict[int, int]:
        """Sums of 32 bits by address."""
        found = {}
        for at in range(place * 128, place * 128 + words // 2):
            sums = [sum(self.payload[port, at] >> 32 * half for port in range(PORTS)) & 0xFFFFFFFF for half in (0, 1)]
            found[at] = sums[1] << 32 | sums[0]
        return found


async def ready(dut: Any) -> Bench:
    """A bench whose processor has been reset and has cleared its places."""
    bench = Bench(dut, chance())
    await start(
        dut, tick_i=0, age_limit_i=0xFFFFFFFF, generation_i=0, ports_i=3, has_rank_i=3, port_of_rank_i=0b10,
        valid_i=0, is_early_i=0, is_bad_i=0, is_awaited_i=0, awaited_place_i=0, sum_taken_i=0, tag_address_i=0,
        is_sending_i=0, sending_place_i=0, payload_data_i=0, adds_i=(1 << COLUMNS * PORTS) - 1,
    )  # fmt: skip
    for _ in range(PLACES + 8):
        await bench.cycle()
    return bench


@cocotb.test()
async def waits_for_a_sum_that_is_being_sent(dut: Any) -> None:
    """Another place is folded meanwhile; this one afterwards."""
    bench = await ready(dut)
    for held, place in ((False, PLACE + 1), (True, PLACE)):
        bench.told.clear()
        bench.results.clear()
        dut.is_sending_i.value, dut.sending_place_i.value = 1, PLACE
        await bench.contribute(place, 4)
        for _ in range(80):
            await bench.cycle()
        assert bench.told == ([] if held else [packet(place, 4)])
        assert bench.results == ({} if held else bench.expected(place))
    dut.is_sending_i.value = 0
    for _ in range(80):
        await bench.cycle()
    assert bench.told == [packet(PLACE, 4)]
    assert bench.results == bench.expected(PLACE)


@cocotb.test()
async def waits_for_the_last_gradients(dut: Any) -> None:
    """A frame whose first words have not come holds the fold of its place, and no other."""
    bench = await ready(dut)
    dut.is_awaited_i.value, dut.awaited_place_i.value = 0b10, PLACE << 9 | 1
    await bench.contribute(PLACE, 4)
    for _ in range(80):
        await bench.cycle()
    assert bench.told == [] and bench.results == {}
    dut.is_awaited_i.value = 0b01  # of another place
    for _ in range(80):
        await bench.cycle()
    assert bench.told == [packet(PLACE, 4)] and bench.results == bench.expected(PLACE)


@cocotb.test()
async def keeps_a_sum_that_was_sent(dut: Any) -> None:
    """It is busy until the sum is known as one that is kept. Then it answers with that sum."""
    bench = await ready(dut)
    assert await bench.contribute(PLACE, 4) == [KEPT, FOLDED]
    for _ in range(80):
        await bench.cycle()
    assert bench.told == [packet(PLACE, 4)] and not dut.made_busy_o.value
    dut.sum_taken_i.value, dut.sum_taken_packet_i.value = 1, packet(PLACE, 4)
    await bench.cycle()
    dut.sum_taken_i.value = 0
    was_busy, folded = False, []
    for _ in range(20):
        await bench.cycle()
        was_busy |= bool(dut.made_busy_o.value)
        if dut.folded_valid_o.value:
            folded.append(number(dut.folded_o))
    assert was_busy and not dut.made_busy_o.value and folded == [packet(PLACE, 4)]
    assert await bench.contribute(PLACE, 4) == [ANSWERED, ANSWERED]


@cocotb.test()
@cocotb.parametrize((("delay", "cause"), [(0, ""), (3, ""), (40, ""), (2, "bad"), (2, "sent"), (2, "awaited")]))
async def folds_before_the_last_is_judged(dut: Any, delay: int, cause: str) -> None:
    """The last contribution is asked about early, and judged some cycles after the fold has begun. Its sum is written
    and told once, and not before. Without a cause against it the first fold is the only one, if the judgement comes in
    time."""
    bench = await ready(dut)
    asked = packet(PLACE, 4, LONG_WORDS)
    assert await bench.ask(0, asked) == KEPT
    if cause == "awaited":
        dut.is_awaited_i.value, dut.awaited_place_i.value = 0b10, PLACE << 9
    assert await bench.ask(1, asked, is_early=True) == FOLDED
    begins = 0
    was_reading = False

    async def wait(cycles: int) -> None:
        nonlocal begins, was_reading
        for _ in range(cycles):
            await bench.cycle()
            begins += bool(dut.payload_read_o.value) and not was_reading
            was_reading = bool(dut.payload_read_o.value)

    await wait(2 + delay)
    assert begins == (0 if cause == "awaited" else 1)
    dut.is_sending_i.value, dut.sending_place_i.value = int(cause == "sent"), PLACE
    assert bench.told == [] and bench.results == {}
    if cause == "bad":
        assert await bench.ask(1, asked, is_bad=True) == BLOCK
        await wait(100)
        assert bench.told == [] and bench.results == {} and not was_reading
    assert await bench.ask(1, asked) == FOLDED
    await wait(30)
    if cause in ("sent", "awaited"):
        assert bench.told == [] and bench.results == {} and not was_reading
        dut.is_sending_i.value = dut.is_awaited_i.value = 0
    await wait(120)
    assert bench.told == [asked] and bench.results == bench.expected(PLACE, LONG_WORDS)
    assert begins == (1 if cause == "awaited" or (delay < 4 and not cause) else 2)
    assert await bench.ask(0, packet(PLACE + 1, 4)) == KEPT
    assert await bench.ask(1, packet(PLACE + 1, 4)) == FOLDED
    await wait(100)
    assert bench.told == [asked, packet(PLACE + 1, 4)]


@cocotb.test()
async def folds_early_at_any_time(dut: Any) -> None:
    """Other places are completed, and sums of places sent, at random times. A sum is written only where its place is
    complete; each is told once."""
    bench = await ready(dut)
    rng = chance()
    wanted: list[int] = []
    for message in range(4, 240):
        place = rng.choice([PLACE, PLACE + 1])
        asked = packet(place, message, LONG_WORDS)
        dut.is_sending_i.value, dut.sending_place_i.value = 0, place
        bench.results.clear()
        assert await bench.ask(0, asked) == KEPT
        if rng.random() < 0.9:
            assert await bench.ask(1, asked, is_early=True) == FOLDED
        for _ in range(rng.randrange(14)):
            dut.is_sending_i.value = int(rng.random() < 0.1)
            await bench.cycle()
        if rng.random() < 0.3:
            assert await bench.ask(1, asked, is_bad=True) == BLOCK
        elif rng.random() < 0.3:
            other = packet(PLACE + 2, message)
            assert [await bench.ask(port, other) for port in range(PORTS)] == [KEPT, FOLDED]
            wanted.append(other)
        assert not bench.results.keys() & bench.expected(place, LONG_WORDS).keys()
        if rng.random() < 0.5:
            assert await bench.ask(1, asked, is_early=True) == FOLDED
            for _ in range(rng.randrange(14)):
                await bench.cycle()
        assert await bench.ask(1, asked) == FOLDED
        wanted.append(asked)
        dut.is_sending_i.value = 0
        for _ in range(200):
            await bench.cycle()
        assert sorted(bench.told) == sorted(wanted)
        assert bench.results.items() >= bench.expected(place, LONG_WORDS).items()
        while bench.made < len(bench.told):
            dut.sum_taken_i.value, dut.sum_taken_packet_i.value = 1, bench.told[bench.made]
            await bench.cycle()
            dut.sum_taken_i.value = 0
            bench.made += 1
            for _ in range(10):
                await bench.cycle()


def test_aggregation_processor() -> None:
    """Two ports, one job, no block floating point."""
    simulate("aggregation_processor", __file__, Ports=PORTS, Jobs=1)


def test_formats() -> None:
    """Two ports of three fold, one job, every format."""
    tests = Path(__file__).with_name("formats.py")
    simulate("aggregation_processor", str(tests), Ports=PORTS + 1, Jobs=1, HasBfp=1, HasHalf=1)
