"""Every clock crossing of the switches, and of NICs behind MACs, has a constraint in the files for each tool."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from netfold_lab.rtl import constraints, hierarchy
from netfold_lab.rtl.paths import SOURCES, RtlError

PORTS = 3
# Modules with flip-flops that another clock, or none, drives.
CROSSING = {path.stem: path.read_text() for path in SOURCES.rglob("*.sv") if "ASYNC_REG" in path.read_text()}
FIRST = re.compile(r"\b(\w*meta_q|sclk_q|cs_nq|mosi_q)\s*<=")  # signals that take what crosses


@dataclass(frozen=True)
class Design:
    """A design with PORTS ports: its top, its settings, the pins without a clock, and for each port the FIFOs between
    clocks and the resets."""

    name: str
    top: str
    settings: dict[str, int]
    inputs: int
    limit_ns: float
    fifos: int = 2
    resets: int = 2


# For each slice of a port: frames in and out, and what was dropped; and the two resets that its switch has anyway.
DESIGNS = (
    Design("switch", "netfold_switch", {"Ports": PORTS}, 3, 5.0),
    Design("nic", "netfold_nic_quad", {"Ports": PORTS, "Crosses": 1}, 0, 1000 / 322.265625),
    Design("switch25", "netfold_switch_sliced", {"Ports": PORTS, "Slices": 2, "Width": 128}, 0, 5.0, 6, 6),
    Design(
        "switch100", "netfold_switch_sliced", {"Ports": PORTS, "Slices": 8, "Width": 512}, 0, 1000 / 322.265625, 24, 18
    ),
)


@pytest.fixture(scope="module", params=DESIGNS, ids=lambda design: design.name)
def design(request: pytest.FixtureRequest) -> Design:
    """Each of them."""
    return request.param


@pytest.fixture(scope="module")
def made(design: Design) -> constraints.Constraints:
    """Its constraints."""
    return constraints.read(design.name, PORTS)


@pytest.mark.parametrize(("suffix", "separator"), [("xdc", "/"), ("sdc", "|"), ("lpf", ".")])
def test_every_crossing_has_a_constraint_in_every_file(
    made: constraints.Constraints, design: Design, suffix: str, separator: str
) -> None:
    """The crossings are found in the sources, not in constraints.toml."""
    text = constraints.WRITERS[suffix](made)
    found = 0
    for module, path in hierarchy.instances(design.top, design.settings):
        for first in set(FIRST.findall(CROSSING.get(module, ""))):
            assert f"{separator.join(path)}{separator}{first}" in text, (path, first)
            found += 1
    assert found == PORTS * (2 * design.fifos + design.resets) + design.inputs  # a FIFO has two codes


def test_constraints_name_signals_that_exist(made: constraints.Constraints, design: Design) -> None:
    root = hierarchy.elaborate(design.top, design.settings)
    for crossing in made.crossings:
        below = ".".join([design.top, *crossing.path])
        start = design.top if crossing.kind == "input" else below
        for signal in ([f"{start}.{crossing.start}"] if crossing.start else []) + (
            [f"{below}.{crossing.end}"] if crossing.end else []
        ):
            assert root.lookupName(signal) is not None, signal
    for clock in made.clocks:
        assert root.lookupName(f"{design.top}.{clock.port}") is not None, clock


def test_codes_are_bounded_by_the_fastest_clock(made: constraints.Constraints, design: Design) -> None:
    """A delay and a skew for each Gray code; the SPI and resets are not timed."""
    assert made.limit_ns == min(1000 / clock.mhz for clock in made.clocks) == design.limit_ns
    limit = re.escape(f"{design.limit_ns:.3f}")
    codes = sum(crossing.kind == "gray" for crossing in made.crossings)
    assert codes == 2 * design.fifos * PORTS
    xdc, sdc = constraints.vivado(made), constraints.quartus(made)
    assert len(re.findall(rf"^set_bus_skew .* {limit}$", xdc, re.MULTILINE)) == codes
    assert len(re.findall(rf"^set_max_delay -datapath_only -from .* -to .* {limit}$", xdc, re.MULTILINE)) == codes
    assert len(re.findall(rf"^set_max_skew {limit} ", sdc, re.MULTILINE)) == codes
    assert len(re.findall(r"^set_false_path -from \[get_ports", xdc, re.MULTILINE)) == design.inputs
    assert len(re.findall(r'^FREQUENCY PORT "', constraints.nextpnr(made), re.MULTILINE)) == 1 + 2 * PORTS


def test_an_unknown_design_is_an_error() -> None:
    with pytest.raises(RtlError, match="no design bridge"):
        constraints.read("bridge", 2)
