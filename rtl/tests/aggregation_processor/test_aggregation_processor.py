"""Folds two workers' numbers, waits with a place whose sum is still being sent, and knows which sums were sent."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from benches import chance, number, packed, simulate, start

PORTS, PLACES, PACKET_BITS = 2, 512, 66
WORDS, INT32 = 8, 0
KEPT, FOLDED, ANSWERED = 1, 2, 3
PLACE = 5


def packet(place: int, message: int) -> int:
    """`packet_t` of job 0 in its first epoch."""
    return packed([(0, 4), (0, 10), (place, 9), (message, 32), (WORDS, 9), (INT32, 2)])


class Bench:
    """Payload buffers with numbers of their own for every place, and the results that are written."""

    def __init__(self, dut: Any, rng: Any) -> None:
        self.dut = dut
        self.payload = {(port, at): rng.getrandbits(64) for port in range(PORTS) for at in range(PLACES * 128)}
        self.results: dict[int, int] = {}
        self.told: list[int] = []  # sums, as packets
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
        if dut.sum_valid_o.value:
            self.told.append(number(dut.sum_o))

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

    def expected(self, place: int) -> dict[int, int]:
        """Sums of 32 bits by address."""
        found = {}
        for at in range(place * 128, place * 128 + WORDS // 2):
            sums = [sum(self.payload[port, at] >> 32 * half for port in range(PORTS)) & 0xFFFFFFFF for half in (0, 1)]
            found[at] = sums[1] << 32 | sums[0]
        return found


async def ready(dut: Any) -> Bench:
    """A bench whose processor has been reset and has cleared its places."""
    bench = Bench(dut, chance())
    await start(
        dut, tick_i=0, age_limit_i=0xFFFFFFFF, generation_i=0, ports_i=3, has_rank_i=3, port_of_rank_i=0b10,
        valid_i=0, is_bad_i=0, is_awaited_i=0, awaited_place_i=0, sum_taken_i=0, tag_address_i=0, is_sending_i=0,
        sending_place_i=0, payload_data_i=0,
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


def test_aggregation_processor() -> None:
    """Two ports, one job, no block floating point."""
    simulate("aggregation_processor", __file__, Ports=PORTS, Jobs=1)
