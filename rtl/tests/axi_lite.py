"""Driving AXI-Lite, also where several devices share their ports' vectors."""

from __future__ import annotations

import random
from typing import Any

from cocotb.handle import LogicObject
from cocotb.triggers import RisingEdge

from benches import number, wait_for

OKAY, SLAVE_ERROR = 0, 2


class Wires:
    """The signals of device `index` of `of` in a bench; each has its part of every vector."""

    def __init__(self, dut: Any, given: dict[str, int], index: int = 0, of: int = 1) -> None:
        self.dut, self.given, self.index, self.of = dut, given, index, of  # given: all devices' inputs by signal

    def _part(self, signal: Any) -> tuple[int, int]:
        width = (1 if isinstance(signal, LogicObject) else len(signal)) // self.of
        return width * self.index, (1 << width) - 1

    def set(self, **values: int) -> None:
        """Drive this device's part of inputs."""
        for name, value in values.items():
            signal = getattr(self.dut, name)
            low, mask = self._part(signal)
            self.given[name] = self.given.get(name, 0) & ~(mask << low) | value << low
            signal.value = self.given[name]

    def get(self, name: str) -> int:
        """This device's part of a signal."""
        signal = getattr(self.dut, name)
        low, mask = self._part(signal)
        return number(signal) >> low & mask


class AxiLite:
    """One access at a time; address and data of a write come separately, and answers may wait."""

    def __init__(self, wires: Wires, rng: random.Random, prefix: str = "") -> None:
        self.wires, self.rng, self.prefix = wires, rng, prefix
        self._set(awvalid=0, wvalid=0, bready=0, arvalid=0, rready=0)

    def _set(self, **values: int) -> None:
        self.wires.set(**{f"{self.prefix}{name}_i": value for name, value in values.items()})

    def _get(self, name: str) -> int:
        return self.wires.get(f"{self.prefix}{name}_o")

    async def _pause(self) -> None:
        for _ in range(self.rng.choice([0, 0, 1, 3])):
            await RisingEdge(self.wires.dut.clk_i)

    async def _until(self, name: str) -> None:
        await RisingEdge(self.wires.dut.clk_i)
        await wait_for(self.wires.dut, lambda: self._get(name) == 1)

    async def write(self, offset: int, value: int) -> int:
        """Write a word; returns the response."""
        for channel in self.rng.sample([{"awaddr": offset, "awvalid": 1}, {"wdata": value, "wvalid": 1}], 2):
            await self._pause()
            self._set(**channel)
        await self._until("awready")
        self._set(awvalid=0, wvalid=0)
        await self._pause()
        self._set(bready=1)
        await self._until("bvalid")
        self._set(bready=0)
        return self._get("bresp")

    async def read(self, offset: int) -> int:
        """Read a word."""
        self._set(araddr=offset, arvalid=1)
        await self._until("arready")
        self._set(arvalid=0)
        await self._pause()
        self._set(rready=1)
        await self._until("rvalid")
        self._set(rready=0)
        return self._get("rdata")
