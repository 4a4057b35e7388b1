"""Frames into and out of a switch, in beats of eight bytes or more, like MACs."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, Timer
from cocotb.utils import get_sim_time

from benches import begin_reset

BEAT = 8
FRAME_MIN = 60  # bytes of the shortest frame on the wire, without its FCS
FRAME_MAX = 1526
AROUND = 24  # FCS, preamble and gap
MAC_PS = 6400
SWITCH_PS = 5000


@dataclass
class Sent:
    """A frame that left: its bytes, whether it is marked as damaged, the time of its first beat."""

    frame: bytes
    is_damaged: bool
    time_ns: float


@dataclass
class Port:
    """The beats that one port still has to receive (None for a gap), and the frames that it has sent."""

    waiting: deque[tuple[int, int, int, int] | None] = field(default_factory=deque)
    sent: list[Sent] = field(default_factory=list)
    began_ns: list[float] = field(
        default_factory=list
    )  # time at which the first beat of each received frame was accepted
    partial: bytes = b""
    partial_ns: float = 0.0
    stalls: float = 0.0  # probability that the MAC pauses for the length of a frame
    underruns: int = 0  # beats that a MAC would have missed within a frame
    busy: float = 0.0  # cycles that the line takes longer for the frames that left than their beats
    owed: float = 0.0  # cycles of the line that the frames given so far have not taken


def beats_of(frame: bytes, error: bool = False, beat: int = BEAT) -> list[tuple[int, int, int, int]]:
    """(data, keep, last, error) of each beat of `beat` bytes."""
    starts = range(0, len(frame), beat)
    parts = [frame[at : at + beat] for at in starts]
    return [
        (int.from_bytes(part, "little"), (1 << len(part)) - 1, int(part is parts[-1]), int(error and part is parts[-1]))
        for part in parts
    ]


class Bench:
    """The MACs of all ports of `dut`. Receiving and sending have clocks of one frequency; `rng` draws their phases."""

    def __init__(
        self, dut: Any, count: int, rng: random.Random, beat: int = BEAT, mac_ps: int = MAC_PS, gbit: float = 0.0
    ) -> None:
        """`dut`: a netfold_switch with `count` ports, or one with `beat` bytes a beat of a MAC that has a period of
        `mac_ps`. `gbit`: the rate of the lines, if a MAC's beats would carry more."""
        self.dut, self.rng, self.beat, self.mac_ps = dut, rng, beat, mac_ps
        self.ports = [Port() for _ in range(count)]
        self.line_bytes = gbit * mac_ps / 8000  # in a cycle

    async def start(self) -> None:
        """Clocks, and reset."""
        dut = self.dut
        for name in ("s_rx_tvalid_i", "m_tx_tready_i", "s_axil_awvalid_i", "s_axil_wvalid_i", "s_axil_arvalid_i"):
            getattr(dut, name).value = 0
        dut.s_axil_bready_i.value = dut.s_axil_rready_i.value = 1
        for name, value in (("spi_cs_ni", 1), ("spi_sclk_i", 0), ("spi_mosi_i", 0), ("s_rx_dropped_i", 0)):
            if hasattr(dut, name):
                getattr(dut, name).value = value
        dut.rx_clk_i.value = dut.tx_clk_i.value = 0
        await begin_reset(dut)
        cocotb.start_soon(Clock(dut.clk_i, SWITCH_PS, "ps").start())
        cocotb.start_soon(self._receive())
        cocotb.start_soon(self._send())
        for _ in range(10):
            await RisingEdge(dut.clk_i)
        dut.rst_ni.value = 1
        for _ in range(10):
            await RisingEdge(dut.clk_i)

    def give(self, port: int, frame: bytes, error: bool = False, gap: bool = True) -> None:
        """A frame arrives at a port, after those given before."""
        waiting = self.ports[port].waiting
        beats = beats_of(frame, error, self.beat)
        waiting.extend(beats)
        if not gap:
            return
        padding = max(0, FRAME_MIN - len(frame)) + AROUND
        pauses = padding // BEAT
        if self.line_bytes:
            # A part of a cycle that a frame takes less or more than its beats: the next one's gap makes up for it.
            owed = self.ports[port].owed + (len(frame) + padding) / self.line_bytes - len(beats)
            pauses = max(0, int(owed))
            self.ports[port].owed = owed - pauses
        waiting.extend([None] * pauses)

    async def idle(self, cycles_max: int = 20_000, quiet: int = 60) -> None:
        """Wait until no frame moves for a while. Fails if frames never stop."""
        still = sent = 0
        for _ in range(cycles_max):
            await RisingEdge(self.dut.clk_i)
            before, sent = sent, sum(len(port.sent) * FRAME_MAX + len(port.partial) for port in self.ports)
            still = still + 1 if sent == before and not any(port.waiting for port in self.ports) else 0
            if still == quiet:
                return
        raise AssertionError("the switch does not become idle")

    async def _cycles(self, clock: str) -> AsyncIterator[float]:
        """Wait for the middle of the next cycle of the MACs' clock, where signals may be read and set. Returns the end
        of that cycle in ns."""
        signal, ones = getattr(self.dut, clock), (1 << len(self.ports)) - 1
        await Timer(self.rng.randrange(1, self.mac_ps), "ps")
        while True:
            signal.value = ones
            await Timer(self.mac_ps // 2, "ps")
            signal.value = 0
            yield get_sim_time("ns") + self.mac_ps / 2000
            await Timer(self.mac_ps // 2, "ps")

    def _is_busy(self, port: Port) -> bool:
        """Whether the line still carries the last frame and its gap, or the MAC pauses."""
        if port.busy >= 1:
            port.busy -= 1
            return True
        return self.rng.random() < port.stalls

    async def _receive(self) -> None:
        dut, names = self.dut, ("tvalid", "tdata", "tkeep", "tlast", "tuser")
        begins = [True] * len(self.ports)
        async for ends_ns in self._cycles("rx_clk_i"):
            values = dict.fromkeys(names, 0)
            for number, port in enumerate(self.ports):
                beat = port.waiting.popleft() if port.waiting else None
                if beat is None:
                    continue
                if begins[number]:
                    port.began_ns.append(ends_ns)
                begins[number] = bool(beat[2])
                for name, value, width in zip(names, (1, *beat), (1, 8 * self.beat, self.beat, 1, 1), strict=True):
                    values[name] |= value << width * number
            for name, value in values.items():
                getattr(dut, f"s_rx_{name}_i").value = value

    async def _send(self) -> None:
        dut = self.dut
        async for ends_ns in self._cycles("tx_clk_i"):
            valid, ready = int(dut.m_tx_tvalid_o.value), 0
            data = int(dut.m_tx_tdata_o.value) if valid else 0
            keep, last, user = (int(getattr(dut, f"m_tx_{name}_o").value) for name in ("tkeep", "tlast", "tuser"))
            for number, port in enumerate(self.ports):
                if port.partial:
                    port.underruns += not valid >> number & 1
                elif self._is_busy(port):
                    continue
                ready |= 1 << number
                if not valid >> number & 1:
                    continue
                if not port.partial:
                    port.partial_ns = ends_ns
                count = (keep >> self.beat * number & (1 << self.beat) - 1).bit_count()
                part = data >> 8 * self.beat * number & (1 << 8 * self.beat) - 1
                port.partial += part.to_bytes(self.beat, "little")[:count]
                if last >> number & 1:
                    port.sent.append(Sent(port.partial, bool(user >> number & 1), port.partial_ns))
                    if self.line_bytes:
                        size = max(FRAME_MIN, len(port.partial)) + AROUND
                        port.busy += size / self.line_bytes - -(-len(port.partial) // self.beat)
                    port.partial = b""
            dut.m_tx_tready_i.value = ready
