"""The Output Arbiter of the aggregation: a frame that came again is answered only with its own sum. The order of turns
has a proof in rtl/formal."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge

from benches import chance, number, packed, simulate, start

PORTS, PACKET_BITS = 2, 66
TURN_MAX = 200  # cycles


def packet(generation: int, place: int, message: int, words: int) -> int:
    """`packet_t` of job 0."""
    return packed([(0, 4), (generation, 10), (place, 9), (message, 32), (words - 1, 8), (0, 3)])


@cocotb.test()
async def answers_with_the_sum_that_is_asked_for(dut: Any) -> None:
    """Another message's sum, that of another epoch, or none is not sent: the frame is lost, and no step is taken."""
    rng = chance()
    await start(dut, ports_i=0b11, has_room_i=0b11)
    for _ in range(60):
        port, generation, place = rng.randrange(PORTS), rng.getrandbits(10), rng.getrandbits(9)
        message, words = rng.getrandbits(32), rng.randrange(1, 20)
        other = rng.choice(["none", "message", "generation", "same", "same"])
        dut.tag_valid_i.value = int(other != "none")
        dut.tag_message_i.value = message ^ (1 << rng.randrange(32) if other == "message" else 0)
        dut.tag_generation_i.value = generation ^ (1 << rng.randrange(10) if other == "generation" else 0)
        await FallingEdge(dut.clk_i)
        dut.repeat_valid_i.value = 1 << port
        dut.repeat_i.value = packet(generation, place, message, words) << PACKET_BITS * port
        await FallingEdge(dut.clk_i)
        dut.repeat_valid_i.value = 0
        steps, lost, is_kept, was_asked = 0, 0, None, False
        for _ in range(TURN_MAX):
            await FallingEdge(dut.clk_i)
            if was_asked:
                is_kept = bool(dut.is_kept_o.value)
            was_asked = number(dut.checks_o) == 1 << port
            steps += int(dut.steps_o.value)
            lost |= number(dut.is_lost_o)
            if is_kept is not None and not dut.is_sending_o.value:
                break
        assert is_kept == (other == "same") == bool(steps), other
        assert lost == (0 if is_kept else 1 << port)


def test_aggregation_output_arbiter() -> None:
    """Two ports."""
    simulate("aggregation_output_arbiter", __file__, Ports=PORTS)
