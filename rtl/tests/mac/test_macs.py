"""Between a MAC and the switch: frames keep their bytes and their damage. A frame from a MAC that the switch has no
room for ends early, damaged."""

from __future__ import annotations

import os
from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from benches import chance, number, simulate
from marks import types_of

MAC_PS, SWITCH_PS = 6400, 5000
BEAT, FRAMES = 8, 150
Frame = tuple[bytes, int]  # bytes, and whether it is damaged


def frames_of(rng: Any) -> list[Frame]:
    """Frames of one beat to ten. Types of Ethernet are in them, or almost."""
    types = [bytes.fromhex(each) for each in ("8100", "88a8", "0800", "8915", "8101", "0008", "1589")]
    words = lambda: rng.choice([*types, rng.randbytes(2)]) + rng.randbytes(2)  # noqa: E731
    sizes = [rng.randrange(1, 81) for _ in range(FRAMES)]
    return [(b"".join(words() for _ in range(20))[:size], int(rng.random() < 0.2)) for size in sizes]


async def begin(dut: Any, crosses: bool, inputs: tuple[str, ...]) -> tuple[Any, Any]:
    """Both clocks (of the MAC, of the switch; the same if nothing crosses), and a reset."""
    for name in inputs:
        getattr(dut, name).value = 0
    dut.rst_ni.value = dut.mac_rst_ni.value = 0
    cocotb.start_soon(Clock(dut.clk_i, SWITCH_PS, "ps").start())
    cocotb.start_soon(Clock(dut.mac_clk_i, MAC_PS if crosses else SWITCH_PS, "ps").start())
    for _ in range(6):
        await RisingEdge(dut.mac_clk_i)
    dut.rst_ni.value = dut.mac_rst_ni.value = 1
    for _ in range(6):
        await RisingEdge(dut.mac_clk_i)
    return (dut.mac_clk_i if crosses else dut.clk_i), dut.clk_i


@cocotb.test(skip=os.environ.get("DEVICE") != "mac_receive")
@cocotb.parametrize(sleep=[0, 300])
async def receives(dut: Any, sleep: int) -> None:
    """A MAC never waits. The switch takes beats at once, or sleeps now and then (at most so many cycles, and as
    long it is awake)."""
    rng = chance()
    mac, switch = await begin(
        dut,
        os.environ["CROSSES"] == "1",
        ("s_tvalid_i", "s_tdata_i", "s_tkeep_i", "s_tlast_i", "s_tuser_i", "m_ready_i"),
    )
    sent = frames_of(rng)
    taken: list[Frame] = []

    async def take() -> None:
        data, waits, awake = b"", 0, 0
        while True:
            awake = 0 if waits else awake + 1
            waits = rng.randrange(sleep // 2, sleep) if sleep and awake == sleep else max(0, waits - 1)
            dut.m_ready_i.value = int(not waits)
            await RisingEdge(switch)
            if dut.m_valid_o.value and dut.m_ready_i.value:
                beat = number(dut.m_beat_o)
                last, extra = beat >> 67 & 1, beat >> 64 & 7
                assert number(dut.m_types_o) == types_of(beat & (1 << 64) - 1)
                data += (beat & (1 << 64) - 1).to_bytes(BEAT, "little")[: extra + 1]
                if last:
                    taken.append((data, beat >> 68))
                    data = b""

    cocotb.start_soon(take())
    for data, damaged in sent:
        for at in range(0, len(data), BEAT):
            part, last = data[at : at + BEAT], at + BEAT >= len(data)
            dut.s_tvalid_i.value, dut.s_tdata_i.value = 1, int.from_bytes(part, "little")
            dut.s_tkeep_i.value = (1 << len(part)) - 1
            dut.s_tlast_i.value, dut.s_tuser_i.value = int(last), int(last and damaged)
            await RisingEdge(mac)
            dut.s_tvalid_i.value = 0
            dut.s_tuser_i.value = rng.randrange(2)  # it counts with the last beat only
            if rng.random() < 0.1:
                await RisingEdge(mac)
    for _ in range(2 * sleep + 60):
        await RisingEdge(mac)
    if not sleep:
        assert taken == sent
        return
    # Of those that did not fit, the head came, and one byte that says damaged; or nothing came.
    at = cut = 0
    for data, damaged in taken:
        while sent[at] != (data, damaged) and not (
            damaged and len(data) % BEAT == 1 and sent[at][0].startswith(data[:-1])
        ):
            at += 1  # it was left out
        cut += sent[at] != (data, damaged)
        at += 1
    assert cut > 0 and len(taken) > FRAMES // 3


@cocotb.test(skip=os.environ.get("DEVICE") != "mac_send")
async def sends(dut: Any) -> None:
    """To a MAC that accepts beats at any pace."""
    rng = chance()
    mac, switch = await begin(dut, os.environ["CROSSES"] == "1", ("s_valid_i", "s_beat_i", "m_tready_i"))
    sent = frames_of(rng)
    taken: list[Frame] = []

    async def take() -> None:
        data = b""
        while True:
            dut.m_tready_i.value = int(rng.random() < 0.8)
            await RisingEdge(mac)
            if dut.m_tvalid_o.value and dut.m_tready_i.value:
                kept = number(dut.m_tkeep_o).bit_count()
                assert number(dut.m_tkeep_o) == (1 << kept) - 1
                last, damaged = int(dut.m_tlast_o.value), int(dut.m_tuser_o.value)
                assert last or (kept == BEAT and not damaged)
                data += number(dut.m_tdata_o).to_bytes(BEAT, "little")[:kept]
                if last:
                    taken.append((data, damaged))
                    data = b""

    cocotb.start_soon(take())
    for data, damaged in sent:
        for at in range(0, len(data), BEAT):
            part, last = data[at : at + BEAT], at + BEAT >= len(data)
            # A beat before the last one is full, whatever it says of its bytes; damage counts with the last.
            extra, error = (len(part) - 1, damaged) if last else (rng.randrange(8), rng.randrange(2))
            dut.s_valid_i.value = 1
            dut.s_beat_i.value = error << 68 | last << 67 | extra << 64 | int.from_bytes(part, "little")
            await RisingEdge(switch)
            while not dut.s_ready_o.value:
                await RisingEdge(switch)
            dut.s_valid_i.value = 0
    for _ in range(100):
        await RisingEdge(mac)
    assert taken == sent


@pytest.mark.parametrize("crosses", [0, 1])
@pytest.mark.parametrize("device", ["mac_receive", "mac_send"])
def test_mac(device: str, crosses: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both directions, between two clocks and with one."""
    monkeypatch.setenv("DEVICE", device)
    monkeypatch.setenv("CROSSES", str(crosses))
    simulate(device, __file__, Crosses=crosses)
