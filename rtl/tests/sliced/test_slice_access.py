"""One AXI-Lite for the registers of all slices: an access reaches the slices that its address names, each once, however
long they take."""

from __future__ import annotations

import random
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from axi_lite import AxiLite, Wires
from benches import chance, number, simulate, start

SLICES, BITS = 8, 3
ALL = 1 << 13 + BITS
SLAVE_ERROR = 2


class Slice:
    """A register file that answers after a while; it refuses addresses that are odd."""

    def __init__(self) -> None:
        self.registers: dict[int, int] = {}
        self.accesses = 0


class Slices:
    """All of them, at the ports of `dut`."""

    def __init__(self, dut: Any, rng: random.Random) -> None:
        self.dut, self.rng = dut, rng
        self.all = [Slice() for _ in range(SLICES)]
        self.signals = {
            name: [0] * SLICES for name in ("awready", "bresp", "bvalid", "arready", "rdata", "rresp", "rvalid")
        }

    def _drive(self, name: str, one: int, value: int) -> None:
        self.signals[name][one] = value
        width = {"bresp": 2, "rresp": 2, "rdata": 32}.get(name, 1)
        whole = sum(each << width * at for at, each in enumerate(self.signals[name]))
        getattr(self.dut, f"m_{name}_i").value = whole

    async def serve(self, one: int) -> None:
        """One slice, forever."""
        dut, mine = self.dut, self.all[one]
        while True:
            await RisingEdge(dut.clk_i)
            writes, reads = number(dut.m_awvalid_o) >> one & 1, number(dut.m_arvalid_o) >> one & 1
            assert not (writes and reads)
            if not (writes or reads):
                continue
            for _ in range(self.rng.choice([0, 1, 7])):
                await RisingEdge(dut.clk_i)
            mine.accesses += 1
            address = number(dut.awaddr_i if writes else dut.araddr_i) & 0x1FFF
            name = "aw" if writes else "ar"
            if writes:
                mine.registers[address] = self.written
            self._drive(f"{name}ready", one, 1)
            await RisingEdge(dut.clk_i)
            self._drive(f"{name}ready", one, 0)
            for _ in range(self.rng.choice([0, 1, 5])):
                await RisingEdge(dut.clk_i)
            answer = "b" if writes else "r"
            self._drive(f"{answer}resp", one, SLAVE_ERROR * (address & 1))
            self._drive("rdata", one, mine.registers.get(address, 0) if reads else self.rng.getrandbits(32))
            self._drive(f"{answer}valid", one, 1)
            await RisingEdge(dut.clk_i)
            self._drive(f"{answer}valid", one, 0)
            self._drive(f"{answer}resp", one, self.rng.getrandbits(2))
            self._drive("rdata", one, self.rng.getrandbits(32))

    written = 0  # the data of the write in progress


class Host(AxiLite):
    """A host whose data do not pass through the module: slices see them at once."""

    def _set(self, **values: int) -> None:
        super()._set(**{name: value for name, value in values.items() if name != "wdata"})


@cocotb.test()
async def reaches_its_slices(dut: Any) -> None:
    """Writes to one slice and to all, reads of one, and of the first for an address of all."""
    rng = chance()
    slices = Slices(dut, rng)
    await start(dut)
    host = Host(Wires(dut, {}), rng)
    for one in range(SLICES):
        cocotb.start_soon(slices.serve(one))
    model: list[dict[int, int]] = [{} for _ in range(SLICES)]
    expected = [0] * SLICES
    for _ in range(200):
        register, one, is_all = rng.randrange(6), rng.randrange(SLICES), rng.random() < 0.3
        address = ALL * is_all | one << 13 | register
        if rng.random() < 0.5:
            slices.written = rng.getrandbits(32)
            assert await host.write(address, slices.written) == SLAVE_ERROR * (register & 1)
            for at in range(SLICES) if is_all else [one]:
                model[at][register] = slices.written
                expected[at] += 1
        else:
            at = 0 if is_all else one
            assert await host.read(address) == model[at].get(register, 0)
            assert dut.rresp_o.value == SLAVE_ERROR * (register & 1)
            expected[at] += 1
        assert [each.accesses for each in slices.all] == expected
        assert [each.registers for each in slices.all] == model


@cocotb.test()
async def takes_a_write_and_a_read_in_turn(dut: Any) -> None:
    """A write and a read come at once, and the host takes the write's answer late: the read does not change it."""
    slices = Slices(dut, chance())
    await start(dut)
    for one in range(SLICES):
        cocotb.start_soon(slices.serve(one))
    dut.awaddr_i.value, dut.araddr_i.value = 1 << 13 | 1, 2 << 13 | 2
    dut.awvalid_i.value = dut.wvalid_i.value = dut.arvalid_i.value = 1
    dut.bready_i.value, dut.rready_i.value = 0, 1
    order = []
    for cycle in range(120):
        await RisingEdge(dut.clk_i)
        if dut.awready_o.value:
            order.append("write")
            dut.awvalid_i.value = dut.wvalid_i.value = 0
        if dut.arready_o.value:
            order.append("read")
            dut.arvalid_i.value = 0
        if dut.bvalid_o.value:
            assert dut.bresp_o.value == SLAVE_ERROR
        dut.bready_i.value = int(cycle >= 60)
    assert order == ["write", "read"]
    assert [each.accesses for each in slices.all] == [0, 1, 1, 0, 0, 0, 0, 0]


def test_slice_access() -> None:
    """Eight slices."""
    simulate("slice_access", __file__, Slices=SLICES)
