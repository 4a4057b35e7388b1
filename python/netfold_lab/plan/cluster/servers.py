"""Reads the part `servers` of a cluster file."""

from __future__ import annotations

from typing import Any

from netfold_lab.plan.cluster import importers
from netfold_lab.plan.cluster.server import Layout, even_layout
from netfold_lab.plan.cluster.text import Text

GIGA = 1e9
PCIE_GBIT_S = 100.0  # PCIe 3.0 x16
UPI_GBIT_S = 28.0  # between devices of two sockets: papers/eflops_server.py
SERVER_FROM_FILE = ("nccl", "upi_gbit_s", "between_gpus")


def read(text: Text, told: dict[str, Any]) -> Layout:
    """The servers of a cluster file. Raises UsageError."""
    between = told.get("between_gpus", "nic")
    upi = told.get("upi_gbit_s", UPI_GBIT_S) * GIGA
    if "nccl" in told:
        if strange := [name for name in told if name not in SERVER_FROM_FILE]:
            known = ", ".join(SERVER_FROM_FILE)
            raise text.error(("servers", strange[0]), f"{told['nccl']} describes the server; beside it, write {known}")
        try:
            return importers.nccl(text.path.parent / told["nccl"], upi, between)
        except ValueError as error:
            raise text.error(("servers", "nccl"), str(error)) from None
    gpus = told.get("gpus", 1)
    nics = told.get("nics", gpus)
    switches = told.get("pcie_switches", _even_part(gpus))
    sockets = told.get("sockets", 2 - switches % 2)
    if switches > gpus:
        raise text.error(("servers", "pcie_switches"), f"{switches} PCIe switches for {gpus} GPUs: at most one each")
    if sockets > switches:
        raise text.error(("servers", "sockets"), f"{sockets} sockets for {switches} PCIe switches: at most one each")
    if nics > gpus:
        raise text.error(("servers", "nics"), f"{nics} NICs for {gpus} GPUs: a GPU uses one NIC, so at most one each")
    for name, many, of, few, by in (
        ("nics", gpus, "GPUs", nics, "NICs"),
        ("pcie_switches", gpus, "GPUs", switches, "PCIe switches"),
        ("nics", nics, "NICs", min(nics, switches), "PCIe switches"),
        ("sockets", switches, "PCIe switches", sockets, "sockets"),
    ):
        if many % few:
            raise text.error(("servers", name), f"{many} {of} cannot be divided evenly by {few} {by}")
    if sockets == 1 and "upi_gbit_s" in told:
        raise text.error(("servers", "upi_gbit_s"), "a server with one socket has no UPI; leave it out")
    pcie = told.get("pcie_gbit_s", PCIE_GBIT_S) * GIGA
    root_port = told.get("root_port_gbit_s", told.get("pcie_gbit_s", PCIE_GBIT_S)) * GIGA
    return even_layout(gpus, nics, switches, sockets, pcie, root_port, upi, between)


def _even_part(gpus: int) -> int:
    """The largest power of two that divides the number of GPUs, at most half of it, at least 1."""
    part = gpus & -gpus
    return part if part < gpus else max(1, gpus // 2)
