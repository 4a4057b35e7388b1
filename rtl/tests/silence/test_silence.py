"""The rank that a worker waits for: a rank without frames in this epoch, else the rank that was silent longest."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge

from benches import chance, number, simulate, start

PORTS, JOBS = 4, 2
RANK_BITS = 2


@cocotb.test()
async def blames_who_says_nothing(dut: Any) -> None:
    """Frames at one or several ports, ranks in any order of ports, and any of them missing."""
    rng = chance()
    heard = [[-1] * PORTS for _ in range(JOBS)]
    port_of_rank = [rng.sample(range(PORTS), PORTS) for _ in range(JOBS)]
    await start(
        dut, heard_i=0, job_i=0, missed_i=0, ranks_i=0, has_rank_i=0,
        port_of_rank_i=sum(
            port << RANK_BITS * (PORTS * job + rank)
            for job, ports in enumerate(port_of_rank)
            for rank, port in enumerate(ports)
        ),
    )  # fmt: skip
    for cycle in range(3000):
        if cycle % 100 == 50:  # nothing was heard before a reset
            dut.heard_i.value, dut.rst_ni.value = 0, 0
            await RisingEdge(dut.clk_i)
            dut.rst_ni.value = 1
            heard = [[-1] * PORTS for _ in range(JOBS)]
        now = [[rng.random() < 0.15 for _ in range(JOBS)] for _ in range(PORTS)]
        dut.heard_i.value = sum(now[port][job] << JOBS * port + job for port in range(PORTS) for job in range(JOBS))
        ranks = [(1 << rng.randrange(1, PORTS + 1)) - 1 for _ in range(JOBS)]
        has_rank = [mask & (mask if rng.random() < 0.7 else rng.getrandbits(PORTS)) for mask in ranks]
        job, missed = rng.randrange(JOBS), rng.randrange(1, 1 << PORTS)
        dut.ranks_i.value = ranks[1] << PORTS | ranks[0]
        dut.has_rank_i.value = has_rank[1] << PORTS | has_rank[0]
        dut.job_i.value, dut.missed_i.value = job, missed
        await ReadOnly()
        unheard = [rank for rank in range(PORTS) if (ranks[job] & ~has_rank[job]) >> rank & 1]
        times = {port: heard[job][port] for port in range(PORTS) if missed >> port & 1}
        longest = [rank for rank in range(PORTS) if times.get(port_of_rank[job][rank], cycle) == min(times.values())]
        known = [rank for rank in longest if has_rank[job] >> rank & 1]
        if unheard or known:
            assert number(dut.rank_o) == (unheard or known)[0], (heard, missed, has_rank, ranks)
        await RisingEdge(dut.clk_i)
        for port in range(PORTS):
            for one in range(JOBS):
                if now[port][one]:
                    heard[one][port] = cycle


def test_silence() -> None:
    """Four ports, two jobs."""
    simulate("silence", __file__, Ports=PORTS, Jobs=JOBS)
