"""Shared by the tests of all devices: building a module with its parameters, and driving its streams.

A test file contains cocotb tests, which run inside the simulator once for each pair of PAUSES, and pytest tests, which
build and start the simulator. A seed that is printed repeats a run: SEED=17 pytest rtl/tests/...
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, Timer
from cocotb.types import Logic
from cocotb_tools.runner import Verilator, VerilatorControlFile

from netfold_lab.rtl.paths import BUILD, RTL, environment, locked, sources

HERE = Path(__file__).resolve().parent
CYCLES_MAX = 20000  # longest wait of a test
VERILATOR_SEEDS = (1 << 31) - 1  # the simulator takes seeds from 1 to this
CYCLES_BEFORE_RESET = 100
# Probabilities that a cycle has no input, and that it accepts no output.
PAUSES = [(0.0, 0.0), (0.4, 0.0), (0.0, 0.4), (0.4, 0.4)]


class Runner(Verilator):
    """cocotb's, for a model in which Verilator may optimize what no test looks at: it compiles in half the time and
    runs several times as fast. A control file lists the modules whose signals stay visible."""

    def _build_command(self) -> list[list[str]]:
        return [[word for word in command if word != "--public-flat-rw"] for command in super()._build_command()]


def simulate(top: str, test_file: str, inside: Sequence[str] = (), **parameters: int) -> None:
    """Build `top` and run the cocotb tests of `test_file`. They see the signals of `top`, and of the modules `inside`
    it. Files that test one module share its folder in turns."""
    values = [f"{name}{value}" for name, value in sorted(parameters.items())]
    reached = os.environ.get("NETFOLD_RTL_COVERAGE")  # a folder for the counters of `netfold rtl coverage`
    folder = BUILD / ("cocotb-coverage" if reached else "cocotb") / "-".join([top, *values])
    os.environ.update(environment())  # the runner finds its tools there
    runner = Runner()
    helpers = RTL.parent / "tests" / "python"
    path = os.pathsep.join([str(HERE), str(Path(test_file).parent), str(RTL.parent / "python"), str(helpers)])
    seed = os.environ.get("SEED", str(random.randrange(1 << 30)))
    print(f"SEED={seed}")
    extra = {"SEED": seed, "PYTHONPATH": path}
    # Registers and memories begin with random bits, as after power-on: a module must not rely on zeros.
    words = ["+verilator+rand+reset+2", f"+verilator+seed+{int(seed) % VERILATOR_SEEDS + 1}"]
    mutant = os.environ.get(
        "NETFOLD_RTL_MUTANT", "0"
    )  # of `netfold rtl mutate`: the change that acts, of a built design
    words.append(f"+mutant={mutant}")
    if reached:
        words.append(f"+verilator+coverage+file+{reached}/{folder.name}-{Path(test_file).stem}.dat")
    with locked(folder):
        if mutant == "0" or not (folder / top).exists():
            visible = folder / "visible.vlt"
            lines = [f'public_flat_rw -module "{module}" -var "*"' for module in (top, *inside)]
            visible.write_text("\n".join(["`verilator_config", *lines, ""]))
            runner.build(
                sources=[VerilatorControlFile(visible), *(RTL / name for name in sources())],
                hdl_toplevel=top,
                parameters=parameters,
                build_dir=folder,
                build_args=["-Wno-fatal", "-O1", *(["--coverage-line", "--coverage-toggle"] if reached else [])],
            )
        runner.test(
            hdl_toplevel=top,
            hdl_toplevel_lang="verilog",
            test_module=Path(test_file).stem,
            build_dir=folder,
            extra_env=extra,
            plusargs=words,
        )


def chance() -> random.Random:
    """The random generator of this run."""
    return random.Random(int(os.environ["SEED"]))


def inputs_of(dut: Any) -> dict[str, Any]:
    """The inputs of a module by name, without its clock and reset."""
    ports = {one._name: one for one in dut if one._name.endswith(("_i", "_ni"))}
    return {name: port for name, port in ports.items() if name not in ("clk_i", "rst_ni")}


async def begin_reset(dut: Any) -> None:
    """The first reset, with an edge. Signals begin with random values, and registers that see no edge keep theirs until
    a clock's edge."""
    dut.rst_ni.value = 1
    await Timer(1, "ps")
    dut.rst_ni.value = 0


async def start(dut: Any, **inputs: int) -> None:
    """Clock and reset; inputs begin as given, the others with 0. The reset comes in the middle of random inputs: it
    must end all that a module is doing."""
    rng = random.Random(f"{os.environ['SEED']} before the reset")
    cocotb.start_soon(Clock(dut.clk_i, 10, "ns").start())
    dut.rst_ni.value = 1
    ports = inputs_of(dut)
    for _ in range(CYCLES_BEFORE_RESET):
        for port in ports.values():
            port.value = rng.getrandbits(len(port))
        await RisingEdge(dut.clk_i)
    for name, port in ports.items():
        port.value = inputs.get(name, 0)
    dut.rst_ni.value = 0
    for _ in range(4):
        await RisingEdge(dut.clk_i)
    dut.rst_ni.value = 1


async def give(dut: Any, rng: random.Random, idle: float, beats: list[dict[str, int]], valid: str, ready: str) -> None:
    """Offer beats (values by signal) one by one, each until it is accepted, with idle cycles between."""
    for beat in beats:
        while rng.random() < idle:
            await RisingEdge(dut.clk_i)
        for name, value in beat.items():
            getattr(dut, name).value = value
        getattr(dut, valid).value = 1
        await RisingEdge(dut.clk_i)
        while not getattr(dut, ready).value:
            await RisingEdge(dut.clk_i)
        getattr(dut, valid).value = 0


async def take(
    dut: Any, rng: random.Random, stall: float, count: int, valid: str, ready: str, read: Callable[[], Any]
) -> list[Any]:
    """Accept `count` beats; returns the value of `read` for each. Fails if they do not come."""
    taken: list[Any] = []
    for _ in range(CYCLES_MAX):
        getattr(dut, ready).value = int(rng.random() >= stall)
        await RisingEdge(dut.clk_i)
        if getattr(dut, valid).value and getattr(dut, ready).value:
            taken.append(read())
            if len(taken) == count:
                getattr(dut, ready).value = 0
                return taken
    raise AssertionError(f"{len(taken)} of {count} beats came in {CYCLES_MAX} cycles")


def number(signal: Any) -> int:
    """A signal as an unsigned number."""
    value = signal.value
    return int(value) if isinstance(value, Logic) else value.to_unsigned()


def packed(fields: list[tuple[int, int]]) -> int:
    """A packed struct of (value, bits), the first the highest."""
    whole = 0
    for value, bits in fields:
        assert 0 <= value < 1 << bits
        whole = whole << bits | value
    return whole


async def wait_for(dut: Any, condition: Callable[[], bool]) -> None:
    """Wait until a condition holds after a clock edge. Fails if it never holds."""
    for _ in range(CYCLES_MAX):
        if condition():
            return
        await RisingEdge(dut.clk_i)
    raise AssertionError(f"the condition did not hold within {CYCLES_MAX} cycles")


class Bursts:
    """The commands of a memory port, `<prefix>_valid_o` and so on: (address, bytes) in order of acceptance."""

    def __init__(self, dut: Any, rng: random.Random, stall: float, prefix: str) -> None:
        self.dut, self.rng, self.stall, self.prefix = dut, rng, stall, prefix
        self.taken: list[tuple[int, int]] = []

    async def collect(self) -> None:
        """Run forever."""
        names = ("ready_i", "valid_o", "address_o", "bytes_o")
        ready, valid, address, size = (getattr(self.dut, f"{self.prefix}_{name}") for name in names)
        while True:
            ready.value = int(self.rng.random() >= self.stall)
            await RisingEdge(self.dut.clk_i)
            if valid.value and ready.value:
                self.taken.append((number(address), number(size)))
