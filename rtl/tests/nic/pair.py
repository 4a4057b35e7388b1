"""Two whole NICs as neighbours, each with a driver and host memory."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge, Timer

from axi_lite import AxiLite, Wires
from benches import wait_for
from netfold_lab.rtl import registers

LANES = 8
BEAT = 4 * LANES  # bytes
PORTS = 2
OFFSETS = {register.name: register.offset for register in registers.read(registers.NIC).registers}
DONE, TIMEOUT, MISMATCH, RESET, REFUSED = range(5)
ENABLE, BFP, SOFT_RESET = 1, 2, 4
READY, FAILED, BUSY, RESETTING = 1, 2, 4, 8
SOURCE, DESTINATION = 0x1000, 0x9000
MEMORY_BYTES = 0x10000  # the host's memory repeats in the 64-bit address space
# Of a MAC, where the NIC's clock has 10 ns: 322.27 MHz beside 250. The line carries 100 Gbit/s, which is three beats of
# 512 bits in five cycles.
MAC_PS = 7758


@dataclass
class Pace:
    """Probabilities that a port is not ready in a cycle, and that a frame is lost."""

    stall: float = 0.0
    loss: float = 0.0


@dataclass(frozen=True)
class Ring:
    """The settings of a ring of two."""

    addresses: tuple[int, int]
    number: int
    epoch: int


@dataclass
class Nic:
    """One of the two NICs, seen from its host: the driver's calls, and the surroundings of its ports."""

    wires: Wires
    rng: random.Random
    pace: Pace
    memory: bytearray = field(default_factory=lambda: bytearray(MEMORY_BYTES))
    reads: list[tuple[int, int]] = field(default_factory=list)  # (address, bytes) asked for
    writes: list[tuple[int, int]] = field(default_factory=list)
    data: list[tuple[int, int]] = field(default_factory=list)  # (data, keep) of the burst in progress
    unconfirmed: int = 0
    leaving: list[int] = field(default_factory=list)  # beats of a frame
    arriving: list[list[int]] = field(default_factory=list)  # frames

    def __post_init__(self) -> None:
        self.axi = AxiLite(self.wires, self.rng, "s_axil_")
        self.idle()

    def idle(self) -> None:
        """The state after a reset: no port is active, and no transfer is in progress."""
        self.reads, self.writes, self.data, self.unconfirmed = [], [], [], 0
        self.leaving, self.arriving = [], []
        self.wires.set(m_read_command_tready_i=0, s_read_tvalid_i=0, m_write_command_tready_i=0, m_write_tready_i=0)
        self.wires.set(written_i=0, s_eth_tvalid_i=0, s_eth_tuser_i=0, m_eth_tready_i=0)

    # --- The driver ---
    async def join(self, position: int, ring: Ring, bfp: bool, timeout: int = 1 << 16) -> None:
        """Soft reset, settings, enable. The timeout is in 1024 cycles."""
        await self.axi.write(OFFSETS["CONTROL"], SOFT_RESET)
        while await self.status() & (READY | RESETTING) != READY:
            pass
        while await self.axi.read(OFFSETS["COMPLETION"]):
            pass
        own, other = ring.addresses[position], ring.addresses[1 - position]
        for name, value in (("OWN", own), ("RIGHT", other), ("LEFT", other)):
            await self.axi.write(OFFSETS[f"{name}_ADDRESS_LOW"], value & 0xFFFFFFFF)
            await self.axi.write(OFFSETS[f"{name}_ADDRESS_HIGH"], value >> 32)
        await self.axi.write(OFFSETS["RING"], PORTS << 8 | position)
        await self.axi.write(OFFSETS["IDENTITY"], ring.epoch << 16 | ring.number)
        await self.axi.write(OFFSETS["REQUEST_TIMEOUT"], timeout)
        await self.axi.write(OFFSETS["LINK_TIMEOUT"], 600)
        await self.axi.write(OFFSETS["CONTROL"], ENABLE | (BFP if bfp else 0))

    async def status(self) -> int:
        """Read a register."""
        return await self.axi.read(OFFSETS["STATUS"])

    async def post(self, numbers: np.ndarray, at: int, tag: int) -> None:
        """Post an all-reduce of these numbers; they and their sums are `at` bytes after SOURCE and DESTINATION."""
        self.memory[SOURCE + at : SOURCE + at + 4 * numbers.size] = numbers.tobytes()
        for name, low in (("SOURCE", SOURCE), ("DESTINATION", DESTINATION)):
            await self.axi.write(OFFSETS[f"REQUEST_{name}_LOW"], self.rng.randrange(1 << 16) * MEMORY_BYTES | low + at)
            await self.axi.write(OFFSETS[f"REQUEST_{name}_HIGH"], self.rng.getrandbits(32))
        await self.axi.write(OFFSETS["REQUEST_COUNT"], numbers.size)
        await self.axi.write(OFFSETS["REQUEST_POST"], tag)

    async def ended(self) -> tuple[int, int]:
        """(tag, status) of the next request that ends."""
        await wait_for(self.wires.dut, lambda: self.wires.get("interrupt_o") == 1)
        word = await self.axi.read(OFFSETS["COMPLETION"])
        return word & 0xFFFF, word >> 16 & 7

    def sums(self, at: int, count: int) -> np.ndarray:
        """The numbers at an address."""
        return np.frombuffer(bytes(self.memory[DESTINATION + at : DESTINATION + at + 4 * count]), dtype=np.float32)

    # --- The surroundings, cycle by cycle: an offered beat stays until it is accepted ---
    def goes(self) -> bool:
        """Whether a port transfers in this cycle."""
        return self.rng.random() >= self.pace.stall

    def before(self) -> None:
        """Drive the inputs of the next cycle."""
        wires = self.wires
        for name in ("m_read_command_tready_i", "m_write_command_tready_i", "m_write_tready_i"):
            wires.set(**{name: int(self.goes())})
        if self.reads and self.goes():
            address, size = self.reads[0]
            part = self.memory[address : address + min(size, BEAT)]
            wires.set(s_read_tvalid_i=1, s_read_tdata_i=int.from_bytes(part, "little"))
        confirms = self.unconfirmed > 0 and self.goes()
        self.unconfirmed -= confirms
        wires.set(written_i=int(confirms))

    def before_wires(self) -> None:
        """... of the Ethernet ports."""
        wires = self.wires
        wires.set(m_eth_tready_i=int(self.goes()))
        if self.arriving and self.goes():
            frame = self.arriving[0]
            wires.set(s_eth_tvalid_i=1, s_eth_tdata_i=frame.pop(0), s_eth_tlast_i=int(not frame))
            if not frame:
                self.arriving.pop(0)
        else:
            wires.set(s_eth_tvalid_i=0)

    def after(self) -> None:
        """Accept the outputs of the cycle."""
        wires = self.wires
        moved = lambda valid, ready: wires.get(valid) == 1 == wires.get(ready)  # noqa: E731
        if moved("s_read_tvalid_i", "s_read_tready_o"):
            address, size = self.reads.pop(0)
            if size > BEAT:
                self.reads.insert(0, (address + BEAT, size - BEAT))
            wires.set(s_read_tvalid_i=0)
        for kind, asked in (("read", self.reads), ("write", self.writes)):
            if moved(f"m_{kind}_command_tvalid_o", f"m_{kind}_command_tready_i"):
                names = (f"m_{kind}_command_address_o", f"m_{kind}_command_bytes_o")
                asked.append((wires.get(names[0]) % MEMORY_BYTES, wires.get(names[1])))
        if moved("m_write_tvalid_o", "m_write_tready_i"):
            self.data.append((wires.get("m_write_tdata_o"), wires.get("m_write_tkeep_o")))
        self._store()

    def after_wires(self) -> list[int] | None:
        """... of the Ethernet ports; returns a whole frame that has left."""
        return self._leave(self.wires.get("m_eth_tready_i"))

    def _leave(self, ready: int) -> list[int] | None:
        """A beat leaves if there is one; returns its frame if that is whole. A frame that has begun goes on, without a
        hole, unless the device is reset by wire."""
        if not self.wires.dut.rst_ni.value:
            self.leaving = []
        valid = self.wires.get("m_eth_tvalid_o")
        assert valid or not self.leaving, "a frame has a hole"
        if not (valid and ready):
            return None
        self.leaving.append(self.wires.get("m_eth_tdata_o"))
        if not self.wires.get("m_eth_tlast_o"):
            return None
        frame, self.leaving = self.leaving, []
        return frame

    def mac_cycle(self, line: deque[int | None]) -> list[int] | None:
        """A MAC before its clock's next edge; returns as `after_wires`. It takes and gives a frame without a pause, at
        the line's rate. `line`: beats that arrive, and None where the line is slower than the clock."""
        if not line and self.arriving:
            beats = self.arriving.pop(0)
            line.extend([*beats, *[None] * (len(beats) * 2 // 3 + 1)])
        beat = line.popleft() if line else None
        is_last = not line or line[0] is None
        self.wires.set(s_eth_tvalid_i=int(beat is not None), s_eth_tdata_i=beat or 0, s_eth_tlast_i=int(is_last))
        ready = int(self.goes())
        self.wires.set(m_eth_tready_i=ready)
        return self._leave(ready)

    def _store(self) -> None:
        """Write a burst when its command and data have arrived."""
        while self.writes and len(self.data) * BEAT >= self.writes[0][1]:
            address, size = self.writes.pop(0)
            beats = [self.data.pop(0) for _ in range(-(-size // BEAT))]
            data = b"".join(beat.to_bytes(BEAT, "little")[: keep.bit_count()] for beat, keep in beats)
            assert len(data) == size
            self.memory[address : address + size] = data
            self.unconfirmed += 1


class Pair:
    """Both, and the wires between them."""

    def __init__(self, dut: Any, rng: random.Random, pace: Pace) -> None:
        given: dict[str, int] = {}
        self.dut, self.rng, self.pace = dut, rng, pace
        self.nics = [Nic(Wires(dut, given, index, PORTS), rng, pace) for index in range(PORTS)]
        self.plugged = True

    def carry(self, frames: list[list[int] | None]) -> None:
        """Frames that have left arrive at the other NIC, or are lost."""
        for nic, frame in zip(reversed(self.nics), frames, strict=True):
            if frame and self.plugged and self.rng.random() >= self.pace.loss:
                nic.arriving.append(frame)

    async def run(self, crosses: bool) -> None:
        """Run forever: the hosts, and frames between the NICs, unless they are in the clocks of MACs."""
        while True:
            for nic in self.nics:
                nic.before()
                if not crosses:
                    nic.before_wires()
            await RisingEdge(self.dut.clk_i)
            for nic in self.nics:
                nic.after()
            if not crosses:
                self.carry([nic.after_wires() for nic in self.nics])

    async def run_macs(self) -> None:
        """Run forever: the clocks of the MACs, and frames between them."""
        lines: list[deque[int | None]] = [deque() for _ in self.nics]
        await Timer(self.rng.randrange(1, MAC_PS), "ps")
        while True:
            self.dut.rx_clk_i.value = self.dut.tx_clk_i.value = (1 << PORTS) - 1
            await Timer(MAC_PS // 2, "ps")
            self.dut.rx_clk_i.value = self.dut.tx_clk_i.value = 0
            self.carry([nic.mac_cycle(line) for nic, line in zip(self.nics, lines, strict=True)])
            await Timer(MAC_PS // 2, "ps")

    async def both(self, *calls: Any) -> list[Any]:
        """A call of each driver, at the same time."""
        tasks = [cocotb.start_soon(call) for call in calls]
        return [await task for task in tasks]

    async def join(self, epoch: int, bfp: bool = False, timeout: int = 1 << 16) -> None:
        """Configure them as a ring, with any number and any addresses."""
        low, high = self.rng.sample(range(1 << 48), 2)
        ring = Ring((low, high), self.rng.getrandbits(16), epoch)
        await self.both(*(nic.join(i, ring, bfp, timeout) for i, nic in enumerate(self.nics)))
