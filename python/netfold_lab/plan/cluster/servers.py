"""Reads the part `servers` of a cluster file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from netfold_lab.plan.cluster import importers
from netfold_lab.plan.cluster.server import Layout, NvLink, even_layout
from netfold_lab.plan.cluster.text import Text
from netfold_lab.plan.library.machine import FASTEST_GBIT_S, GENERATION_OF, HOPPER, INTEL, generation_of

GIGA = 1e9
PCIE_GBIT_S = 100.0  # PCIe 3.0 x16
UPI_GBIT_S = 28.0  # between devices of two sockets: papers/eflops_server.py
PCIE_BESIDE_NVLINK = {2: 126.0, 3: 252.0, 4: 504.0, 5: 1008.0}  # x16 of PCIe 3.0 to 6.0, by generation of NVLink
SERVER_FROM_FILE = ("nccl", "upi_gbit_s", "between_gpus", "rails")


def read(text: Text, told: dict[str, Any]) -> Layout:
    """The servers of a cluster file. Raises UsageError."""
    between = told.get("between_gpus", "nic")
    upi = told.get("upi_gbit_s", UPI_GBIT_S) * GIGA
    if "nccl" in told:
        if strange := [name for name in told if name not in SERVER_FROM_FILE]:
            known = ", ".join(SERVER_FROM_FILE)
            raise text.error(("servers", strange[0]), f"{told['nccl']} describes the server; beside it, write {known}")
        try:
            found = importers.nccl(text.path.parent / told["nccl"], upi, between)
        except ValueError as error:
            raise text.error(("servers", "nccl"), str(error)) from None
        return _with_rails(text, told, found)
    gpus = told.get("gpus", 1)
    nics = told.get("nics", gpus)
    nvlink = _nvlink(text, told["nvlink"], gpus) if "nvlink" in told else None
    switches = told.get("pcie_switches", _even_part(gpus))
    sockets = told.get("sockets", 2 - switches % 2)
    if switches > gpus:
        raise text.error(("servers", "pcie_switches"), f"{switches} PCIe switches for {gpus} GPUs: at most one each")
    if sockets > switches:
        raise text.error(("servers", "sockets"), f"{sockets} sockets for {switches} PCIe switches: at most one each")
    if nics > gpus and nvlink is None:
        raise text.error(("servers", "nics"), f"{nics} NICs for {gpus} GPUs: a GPU uses one NIC, so at most one each")
    if nics > gpus and nics % gpus:
        raise text.error(("servers", "nics"), f"{nics} NICs cannot be divided evenly by {gpus} GPUs")
    for name, many, of, few, by in (
        ("nics", gpus, "GPUs", min(nics, gpus), "NICs"),
        ("pcie_switches", gpus, "GPUs", switches, "PCIe switches"),
        ("nics", nics, "NICs", min(nics, switches), "PCIe switches"),
        ("sockets", switches, "PCIe switches", sockets, "sockets"),
    ):
        if many % few:
            raise text.error(("servers", name), f"{many} {of} cannot be divided evenly by {few} {by}")
    if sockets == 1 and "upi_gbit_s" in told:
        raise text.error(("servers", "upi_gbit_s"), "a server with one socket has no UPI; leave it out")
    usual = PCIE_BESIDE_NVLINK[nvlink.generation] if nvlink else PCIE_GBIT_S
    pcie = told.get("pcie_gbit_s", usual) * GIGA
    root_port = told.get("root_port_gbit_s", told.get("pcie_gbit_s", usual)) * GIGA
    layout = even_layout(gpus, nics, switches, sockets, pcie, root_port, upi, between)
    return _with_rails(text, told, replace(layout, nvlink=nvlink, processor=told.get("processor", INTEL)))


def _with_rails(text: Text, told: dict[str, Any], layout: Layout) -> Layout:
    rails = told.get("rails", 1)
    if layout.nics % rails:
        raise text.error(("servers", "rails"), f"{layout.nics} NICs cannot be divided evenly by {rails} rails")
    return replace(layout, rails=rails)


def _nvlink(text: Text, told: dict[str, Any], gpus: int) -> NvLink:
    place = ("servers", "nvlink")
    if gpus == 1:
        raise text.error(
            place, "a server with one GPU has nothing that NVLink could connect; leave it out, or write gpus"
        )
    rate = told["rate_gbit_s"]
    device = text.content.get("compute", {}).get("device", "")
    generation = told.get("generation", GENERATION_OF.get(device, generation_of(rate)))
    if rate > FASTEST_GBIT_S[generation]:
        raise text.error(
            (*place, "rate_gbit_s"),
            f"{rate:g} Gbit/s is more than NVLink {generation} has ({FASTEST_GBIT_S[generation]} Gbit/s: all links of "
            "a GPU in one direction); NVIDIA's data sheets add both directions, and count in GB/s",
        )
    is_switched = told.get("switch", True)
    sums = told.get("sharp", is_switched and generation >= HOPPER)
    if sums and not (is_switched and generation >= HOPPER):
        raise text.error((*place, "sharp"), "NVLink SHARP needs NVSwitch and NVLink 4 (H100) or newer")
    return NvLink(rate * GIGA, generation, is_switched, sums)


def _even_part(gpus: int) -> int:
    """The largest power of two that divides the number of GPUs, at most half of it, at least 1."""
    part = gpus & -gpus
    return part if part < gpus else max(1, gpus // 2)
