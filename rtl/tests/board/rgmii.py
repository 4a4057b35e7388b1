"""Gigabit PHYs at the pins of a switch: bytes in and out over RGMII, and frames with preamble, FCS and gap around them.

The PHYs delay both clocks by a quarter of a cycle, as RGMII-ID says: the FPGA sees its edges in the middle of the bits,
and what it sends is read a quarter after its edge.
"""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, Timer

from benches import begin_reset

PREAMBLE = b"\x55" * 7 + b"\xd5"
FRAME_MIN, FCS_BYTES, GAP_BYTES = 60, 4, 12
SWITCH_PS, TX_PS = 20_000, 8_000
RX_PS = (7_996, 8_004)  # the clocks of two neighbours: 500 ppm faster and slower, five times what the standard allows
ERROR = 0x100  # beside a byte: the PHY reports an error


def with_fcs(frame: bytes) -> bytes:
    """A frame, padded to the shortest length, with its FCS."""
    padded = frame.ljust(FRAME_MIN, b"\0")
    return padded + zlib.crc32(padded).to_bytes(FCS_BYTES, "little")


@dataclass
class Sent:
    """A frame that left: its bytes without FCS, whether the FCS is wrong, and the byte times since the frame before."""

    frame: bytes
    is_damaged: bool
    gap: int


@dataclass
class Port:
    """The bytes that one PHY still has to give (None for idle), and the frames that it was sent."""

    waiting: deque[int | None] = field(default_factory=deque)
    sent: list[Sent] = field(default_factory=list)
    partial: bytearray = field(default_factory=bytearray)
    idle: int = GAP_BYTES


class Phys:
    """The PHYs of both ports of `dut`, a gigabit_switch."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.ports = [Port() for _ in RX_PS]
        self._clock = self._control = self._data = 0  # pins of all ports towards the FPGA

    async def start(self) -> None:
        """Clocks, and reset; then wait until the switch has cleared its tables."""
        dut = self.dut
        await begin_reset(dut)
        dut.is_float_i.value = dut.spi_cs_ni.value = 1
        dut.spi_sclk_i.value = dut.spi_mosi_i.value = 0
        cocotb.start_soon(Clock(dut.clk_i, SWITCH_PS, "ps").start())
        cocotb.start_soon(self._read())
        for port in range(len(self.ports)):
            cocotb.start_soon(self._give(port))
        for _ in range(10):
            await RisingEdge(dut.clk_i)
        dut.rst_ni.value = 1
        for _ in range(600):
            await RisingEdge(dut.clk_i)

    def give(self, port: int, frame: bytes) -> None:
        """A frame arrives at a port, after those given before."""
        self.give_bytes(port, PREAMBLE + with_fcs(frame))

    def give_bytes(self, port: int, values: bytes | list[int]) -> None:
        """These bytes arrive, perhaps with ERROR; then a gap."""
        self.ports[port].waiting.extend(values)
        self.ports[port].waiting.extend([None] * GAP_BYTES)

    def taken(self, port: int) -> list[Sent]:
        """The frames sent since the last call."""
        found = self.ports[port].sent
        self.ports[port].sent = []
        return found

    async def idle(self, bytes_max: int = 60_000, quiet: int = 1_500) -> None:
        """Wait until no frame has moved for `quiet` byte times. Fails if frames never stop."""
        still = sent = 0
        for _ in range(bytes_max // 100):
            await Timer(100 * TX_PS, "ps")
            before, sent = sent, sum(len(port.sent) for port in self.ports)
            moves = sent != before or any(port.waiting or port.partial for port in self.ports)
            still = 0 if moves else still + 100
            if still > quiet:
                return
        raise AssertionError("the switch does not become idle")

    def _drive(self, port: int, clock: int, nibble: int, control: int) -> None:
        bit = 1 << port
        self._clock = self._clock & ~bit | clock << port
        self._control = self._control & ~bit | control << port
        self._data = self._data & ~(15 << 4 * port) | nibble << 4 * port
        dut = self.dut
        dut.rx_clk_i.value, dut.rx_ctl_i.value, dut.rx_data_i.value = self._clock, self._control, self._data

    async def _give(self, port: int) -> None:
        waiting, quarter = self.ports[port].waiting, RX_PS[port] // 4
        while True:
            byte = waiting.popleft() if waiting else None
            value, control = (0, 0) if byte is None else (byte, 1)
            late = control ^ (value >> 8 & 1)
            for clock, nibble, line in (
                (0, value & 15, control),
                (1, value & 15, control),
                (1, value >> 4 & 15, late),
                (0, value >> 4 & 15, late),
            ):
                self._drive(port, clock, nibble, line)
                await Timer(quarter, "ps")

    async def _read(self) -> None:
        dut, ones = self.dut, (1 << len(self.ports)) - 1
        while True:
            halves = []
            for clock in (1, 0):
                dut.tx_clk_i.value = clock
                await Timer(TX_PS // 4, "ps")
                halves.append((int(dut.tx_ctl_o.value), int(dut.tx_data_o.value)))
                assert dut.rst_ni.value == 0 or int(dut.tx_clk_o.value) == ones * clock
                await Timer(TX_PS // 4, "ps")
            (control, low), (late, high) = halves
            if dut.rst_ni.value == 0:
                continue
            assert control == late, "the switch reports no error to a PHY"
            for number, port in enumerate(self.ports):
                if control >> number & 1:
                    port.partial.append(low >> 4 * number & 15 | (high >> 4 * number & 15) << 4)
                else:
                    self._end(port)

    @staticmethod
    def _end(port: Port) -> None:
        port.idle += 1
        if not port.partial:
            return
        whole, gap = bytes(port.partial), port.idle - 1
        assert whole.startswith(PREAMBLE), whole[:10].hex()
        assert gap >= GAP_BYTES, f"only {gap} bytes between two frames"
        frame, fcs = whole[len(PREAMBLE) : -FCS_BYTES], whole[-FCS_BYTES:]
        assert len(frame) >= FRAME_MIN
        port.sent.append(Sent(frame, zlib.crc32(frame).to_bytes(FCS_BYTES, "little") != fcs, gap))
        port.partial, port.idle = bytearray(), 1
