"""A FIFO between clocks of many ratios and phases: order, no loss, and full speed of the slower side."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import Timer

from benches import chance, number, simulate

BEATS = 400
CLOCKS_PS = [(6400, 5000), (5000, 6400), (6400, 6398), (1000, 7777), (7777, 1000)]


@cocotb.test()
@cocotb.parametrize((("clocks", CLOCKS_PS)), (("pause", [0.0, 0.4])))
async def keeps_order(dut: Any, clocks: tuple[int, int], pause: float) -> None:
    """Writer and reader, each with its own clock and pauses."""
    rng = chance()
    values = [rng.getrandbits(16) for _ in range(BEATS)]
    taken: list[int] = []
    finished: dict[str, int] = {}  # cycles
    dut.s_rst_ni.value = dut.m_rst_ni.value = 0
    dut.s_valid_i.value = dut.m_ready_i.value = 0

    async def cycles(name: str, period: int) -> Any:
        """Wait for the middle of the next cycle, where signals may be read and set."""
        clock = getattr(dut, f"{name}_clk_i")
        await Timer(rng.randrange(1, period), "ps")
        for index in range(40 * BEATS):
            clock.value = 1
            await Timer(period // 2, "ps")
            clock.value = 0
            if index == 3:
                getattr(dut, f"{name}_rst_ni").value = 1
            elif index > 8:
                yield index
            await Timer(period - period // 2, "ps")

    async def write() -> None:
        at, offers = 0, False
        async for index in cycles("s", clocks[0]):
            at += offers  # it was ready in the middle of the last cycle, and still is
            if at == BEATS:
                finished["s"] = index
                dut.s_valid_i.value = 0
                return
            dut.s_valid_i.value = int(rng.random() >= pause)
            dut.s_data_i.value = values[at]
            await Timer(1, "ps")
            offers = bool(dut.s_valid_i.value and dut.s_ready_o.value)

    async def read() -> None:
        async for index in cycles("m", clocks[1]):
            dut.m_ready_i.value = int(rng.random() >= pause)
            await Timer(1, "ps")
            if dut.m_valid_o.value and dut.m_ready_i.value:
                taken.append(number(dut.m_data_o))
                if len(taken) == BEATS:
                    finished["m"] = index
                    return

    tasks = [cocotb.start_soon(write()), cocotb.start_soon(read())]
    for task in tasks:
        await task
    assert taken == values
    if pause == 0.0 and min(clocks) >= 5000:  # sixteen places cover the time of the crossing
        assert finished["m"] * clocks[1] < (BEATS + 40) * max(clocks)


def test_cross_fifo() -> None:
    """Sixteen bits, sixteen places."""
    simulate("cross_fifo", __file__, Width=16, Depth=16)
