"""The whole NIC, as its driver, its host and its neighbour see it: two in a ring, with pauses at every port and lost
frames; resets in the middle of requests; impossible requests."""

from __future__ import annotations

import os
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge
from pair import DONE, FAILED, LANES, MISMATCH, OFFSETS, READY, REFUSED, RESET, SOFT_RESET, TIMEOUT, Pace, Pair

import netfold
from benches import chance, simulate, start

UNIT = 16  # elements; segments are multiples of it
COUNTS = [1, 40, 333]


def expected(numbers: list[np.ndarray], bfp: bool) -> np.ndarray:
    """A ring of two: the owner of a segment adds its own numbers to those that arrive, and both keep the sum that it
    sends."""
    if not bfp:
        return netfold.fold(numbers)
    count = numbers[0].size
    padded = [np.pad(part, (0, -count % UNIT)) for part in numbers]
    middle = (padded[0].size // UNIT + 1) // 2 * UNIT
    sums = []
    for owner, part in enumerate((slice(0, middle), slice(middle, None))):
        mine, other = padded[owner][part], padded[1 - owner][part]
        if mine.size:
            came = netfold.decode(netfold.encode(other), other.size)
            sums.append(netfold.decode(netfold.encode(netfold.fold([came, mine])), mine.size))
    return np.concatenate(sums)[:count]


def tensors(rng: Any, count: int) -> list[np.ndarray]:
    """One a worker."""
    draw = np.random.default_rng(rng.getrandbits(32))
    return [draw.standard_normal(count).astype(np.float32) for _ in range(2)]


async def begin(dut: Any, pace: Pace) -> tuple[Pair, Any]:
    """Clock, reset, hosts and wires."""
    rng = chance()
    pair = Pair(dut, rng, pace)
    await start(dut)
    crosses = os.environ.get("CROSSES") == "1"
    cocotb.start_soon(pair.run(crosses))
    if crosses:
        cocotb.start_soon(pair.run_macs())
    return pair, rng


async def reduces(pair: Pair, rng: Any, bfp: bool, counts: list[int]) -> None:
    """All-reduces that are posted at once end in order, with the right bits on both sides."""
    work = [tensors(rng, count) for count in counts]
    places = [4 * UNIT * i + 4 * sum(counts[:i]) for i in range(len(counts))]
    for tag, (numbers, at) in enumerate(zip(work, places, strict=True)):
        await pair.both(*(nic.post(part, at, tag) for nic, part in zip(pair.nics, numbers, strict=True)))
    for tag, (numbers, at) in enumerate(zip(work, places, strict=True)):
        assert await pair.both(*(nic.ended() for nic in pair.nics)) == [(tag, DONE)] * 2
        for nic in pair.nics:
            assert nic.sums(at, numbers[0].size).tobytes() == expected(numbers, bfp).tobytes()


@cocotb.test()
@cocotb.parametrize((("bfp", "stall", "loss"), [(0, 0.0, 0.0), (1, 0.4, 0.0), (0, 0.4, 0.2), (1, 0.1, 0.2)]))
async def all_reduces(dut: Any, bfp: int, stall: float, loss: float) -> None:
    """Any pace of the hosts, and lossy wires; the counters show drops."""
    pair, rng = await begin(dut, Pace(stall, loss))
    await pair.join(1, bool(bfp))
    await reduces(pair, rng, bool(bfp), COUNTS)
    resent = [await nic.axi.read(OFFSETS["FRAMES_RESENT"]) for nic in pair.nics]
    assert loss > 0 or sum(resent) == 0
    assert [await nic.axi.read(OFFSETS["REQUESTS_DONE"]) for nic in pair.nics] == [len(COUNTS)] * 2
    assert [await nic.axi.read(OFFSETS["DROPS_FULL"]) for nic in pair.nics] == [0, 0]


@cocotb.test()
async def is_reset_in_the_middle(dut: Any) -> None:
    """A reset by software: requests in progress end with RESET. A reset by wire: all state is cleared. Afterwards the
    NIC works again."""
    pair, rng = await begin(dut, Pace(0.3, 0.0))
    for epoch in (1, 129, 254):
        await pair.join(epoch)
        numbers = tensors(rng, 2000)
        await pair.both(*(nic.post(part, 0, 9) for nic, part in zip(pair.nics, numbers, strict=True)))
        for _ in range(rng.randrange(30, 400)):
            await RisingEdge(dut.clk_i)
        await pair.both(*(nic.axi.write(OFFSETS["CONTROL"], SOFT_RESET) for nic in pair.nics))
        assert await pair.both(*(nic.ended() for nic in pair.nics)) == [(9, RESET)] * 2
    await pair.join(4, bfp=True)
    await reduces(pair, rng, True, [100])

    numbers = tensors(rng, 2000)
    await pair.both(*(nic.post(part, 0, 9) for nic, part in zip(pair.nics, numbers, strict=True)))
    for _ in range(300):
        await RisingEdge(dut.clk_i)
    dut.rst_ni.value = 0
    for _ in range(4):
        await RisingEdge(dut.clk_i)
        for nic in pair.nics:
            nic.idle()
    dut.rst_ni.value = 1
    assert [await nic.status() & READY for nic in pair.nics] == [READY] * 2
    assert [await nic.axi.read(OFFSETS["REQUESTS_DONE"]) for nic in pair.nics] == [0, 0]
    await pair.join(5)
    await reduces(pair, rng, False, [100])


@cocotb.test()
async def says_what_is_wrong(dut: Any) -> None:
    """An impossible request ends with its reason; after a failure all requests are refused until a soft reset."""
    pair, rng = await begin(dut, Pace())
    nic = pair.nics[0]
    numbers = tensors(rng, 500)
    await nic.post(numbers[0], 0, 1)
    assert await nic.ended() == (1, REFUSED), "not enabled"

    await pair.join(1, timeout=1)
    await nic.axi.write(OFFSETS["RING"], 2 << 8 | 2)
    await nic.post(numbers[0], 0, 2)
    assert await nic.ended() == (2, REFUSED), "no such place in the ring"

    await pair.join(2, timeout=1)
    await nic.post(numbers[0], 0, 3)
    assert await nic.ended() == (3, TIMEOUT), "the neighbour asks for nothing"
    assert await nic.status() & (READY | FAILED | 7 << 4) == FAILED | TIMEOUT << 4
    await nic.post(numbers[0], 0, 4)
    assert await nic.ended() == (4, REFUSED), "after a failure"

    await pair.join(3, timeout=2)
    await pair.both(pair.nics[0].post(numbers[0], 0, 5), pair.nics[1].post(numbers[1][:300], 0, 5))
    statuses = [status for _, status in await pair.both(*(nic.ended() for nic in pair.nics))]
    assert MISMATCH in statuses and set(statuses) <= {MISMATCH, TIMEOUT}, "other counts"

    await pair.join(4, timeout=2)
    pair.plugged = False
    await pair.both(*(nic.post(part, 0, 6) for nic, part in zip(pair.nics, numbers, strict=True)))
    assert await pair.both(*(nic.ended() for nic in pair.nics)) == [(6, TIMEOUT)] * 2, "nothing comes through"
    assert [await nic.axi.read(OFFSETS["REQUESTS_FAILED"]) for nic in pair.nics] == [6, 2]
    pair.plugged = True
    await pair.join(5)
    await reduces(pair, rng, False, [100])


@pytest.mark.parametrize("crosses", [0, 1])
def test_nic(crosses: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are ports of the device with several ports; with the NICs' clock on the wires, or with those of MACs."""
    monkeypatch.setenv("CROSSES", str(crosses))
    simulate("netfold_nic_quad", __file__, Ports=2, Lanes=LANES, Crosses=crosses)
