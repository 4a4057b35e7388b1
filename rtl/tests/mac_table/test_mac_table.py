"""Compares the address table with a dictionary: all ports ask and learn at once; addresses move and age, and are
replaced only in full buckets."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge

from benches import chance, number, simulate, start

PORTS, ENTRIES, TICK = 4, 64, 1 << 10
CLEAR_CYCLES = ENTRIES // 4 + 10
ANSWER_CYCLES = 3
LEARN_CYCLES = 14  # of the last of several lessons for one bucket


async def begin(dut: Any, age_limit: int = 200) -> None:
    """A clear table."""
    await start(dut, clear_i=0, age_limit_i=age_limit, find_valid_i=0, learn_valid_i=0)
    for cycle in range(CLEAR_CYCLES):
        assert not dut.learns_o.value or cycle >= ENTRIES // 4  # not before every bucket is clear
        await FallingEdge(dut.clk_i)
    assert dut.learns_o.value


async def serve(dut: Any, kind: str, questions: dict[int, int]) -> list[int]:
    """Each port offers an address to `kind` (find or learn) until it is accepted; returns the order of acceptance. An
    address to find stands for a cycle more."""
    waiting, order = dict(questions), []
    stands: dict[int, int] = {}
    valid, ready, addresses = (getattr(dut, f"{kind}_{name}") for name in ("valid_i", "ready_o", "address_i"))
    while waiting:
        addresses.value = sum(address << 48 * port for port, address in (waiting | stands).items())
        valid.value = sum(1 << port for port in waiting)
        await FallingEdge(dut.clk_i)
        taken = number(ready)
        await RisingEdge(dut.clk_i)
        stands = {}
        if taken:
            assert taken.bit_count() == 1
            order.append(taken.bit_length() - 1)
            address = waiting.pop(order[-1])
            if kind == "find":
                stands = {order[-1]: address}
    valid.value = 0
    return order


async def find(dut: Any, questions: dict[int, int]) -> dict[int, int]:
    """Ask for the address of each port's request; returns the port of each known address."""
    answers: dict[int, int] = {}

    async def listen() -> None:
        while len(answers) < len(questions):
            await FallingEdge(dut.clk_i)
            for port in questions:
                if number(dut.found_valid_o) >> port & 1:
                    assert port not in answers and number(dut.found_ports_o).bit_count() <= 1
                    answers[port] = number(dut.found_ports_o).bit_length() - 1  # -1: unknown

    listening = cocotb.start_soon(listen())
    order = await serve(dut, "find", questions)
    assert sorted(order) == sorted(questions)
    for _ in range(ANSWER_CYCLES + 1):
        await RisingEdge(dut.clk_i)
    assert listening.done()
    return answers


@cocotb.test()
async def is_a_dictionary(dut: Any) -> None:
    """A few addresses that move all the time; often several ports learn addresses of one bucket at once."""
    rng = chance()
    await begin(dut)
    addresses = [0x020000000000 + rng.getrandbits(24) for _ in range(12)]
    known: dict[int, int] = {}
    for _ in range(300):
        lessons = {port: rng.choice(addresses) for port in range(PORTS) if rng.random() < 0.5}
        for port in await serve(dut, "learn", lessons):
            known[lessons[port]] = port
        for _ in range(LEARN_CYCLES):
            await RisingEdge(dut.clk_i)
        questions = {port: rng.choice(addresses) for port in range(PORTS)}
        found = await find(dut, questions)
        # Twelve addresses in sixteen buckets of four: it is very unlikely that five share one.
        assert found == {port: known.get(address, -1) for port, address in questions.items()}


@cocotb.test()
async def forgets(dut: Any) -> None:
    """An address that is silent for more ticks than the limit is unknown, and a clear table is empty."""
    await begin(dut, age_limit=2)
    await serve(dut, "learn", {0: 0xA, 1: 0xB})
    for _ in range(3):
        for _ in range(TICK):
            await RisingEdge(dut.clk_i)
        await serve(dut, "learn", {1: 0xB})
    for _ in range(LEARN_CYCLES):
        await RisingEdge(dut.clk_i)
    assert await find(dut, {0: 0xA, 1: 0xB}) == {0: -1, 1: 1}
    dut.clear_i.value = 1
    await RisingEdge(dut.clk_i)
    dut.clear_i.value = 0
    for _ in range(CLEAR_CYCLES):
        await RisingEdge(dut.clk_i)
    assert await find(dut, {0: 0xA, 1: 0xB}) == {0: -1, 1: -1}


@cocotb.test()
async def remembers_up_to_the_limit(dut: Any) -> None:
    """An address is known as long as its age is the limit, not only while it is less."""
    await begin(dut, age_limit=2)
    for _ in range(TICK // 2 - CLEAR_CYCLES):  # its age is then three ticks after two and a half
        await RisingEdge(dut.clk_i)
    await serve(dut, "learn", {0: 0xA})
    for _ in range(2 * TICK):
        await RisingEdge(dut.clk_i)
    assert await find(dut, {0: 0xA}) == {0: 0}
    for _ in range(TICK):
        await RisingEdge(dut.clk_i)
    assert await find(dut, {0: 0xA}) == {0: -1}


@cocotb.test()
async def forgets_at_a_reset(dut: Any) -> None:
    """Addresses that were known before a reset are unknown after it."""
    await begin(dut)
    await serve(dut, "learn", {0: 0xA, 1: 0xB})
    for _ in range(LEARN_CYCLES):
        await RisingEdge(dut.clk_i)
    assert await find(dut, {0: 0xA, 1: 0xB}) == {0: 0, 1: 1}
    dut.rst_ni.value = 0
    await RisingEdge(dut.clk_i)
    dut.rst_ni.value = 1
    for _ in range(CLEAR_CYCLES):
        await RisingEdge(dut.clk_i)
    assert await find(dut, {0: 0xA, 1: 0xB}) == {0: -1, 1: -1}


@cocotb.test()
async def forgets_before_the_sweep(dut: Any) -> None:
    """A port that teaches in every cycle leaves no time to sweep: an old address is unknown nevertheless."""
    await begin(dut, age_limit=1)
    await serve(dut, "learn", {0: 0xA})
    for _ in range(LEARN_CYCLES):
        await RisingEdge(dut.clk_i)
    assert await find(dut, {0: 0xA}) == {0: 0}
    dut.learn_address_i.value, dut.learn_valid_i.value = 0xB << 48, 0b10
    for _ in range(3 * TICK):
        await RisingEdge(dut.clk_i)
    assert await find(dut, {0: 0xA, 1: 0xB}) == {0: -1, 1: 1}
    dut.learn_valid_i.value = 0


@cocotb.test()
async def never_grows(dut: Any) -> None:
    """With far more addresses than fit, the latest are mostly known, and known ports are right."""
    rng = chance()
    await begin(dut)
    heard = {}
    for _ in range(4 * ENTRIES):
        address, port = rng.getrandbits(40) << 8, rng.randrange(PORTS)
        await serve(dut, "learn", {port: address})
        heard[address] = port
    for _ in range(LEARN_CYCLES):
        await RisingEdge(dut.clk_i)
    found = {address: (await find(dut, {0: address}))[0] for address in heard}
    assert all(port in (-1, heard[address]) for address, port in found.items())
    assert ENTRIES / 2 < sum(port >= 0 for port in found.values()) <= ENTRIES


def test_mac_table() -> None:
    """Four ports, sixteen buckets."""
    simulate("mac_table", __file__, Ports=PORTS, Entries=ENTRIES, TickBits=10)
