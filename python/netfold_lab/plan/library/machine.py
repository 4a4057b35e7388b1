"""A group of GPUs in equal servers, as the closed forms see it: rates, counts and the latency of the network.

A rate of NVLink is of one GPU in one direction, of all its links together. The rate of a server's NICs is of all of
them together, in one direction. GPUs without a NIC of their own reach the NICs of others over NVLink (PXN), so that
every NIC of a server is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

VOLTA, AMPERE, HOPPER, BLACKWELL = GENERATIONS = (2, 3, 4, 5)  # of NVLink
GENERATION_OF = {"v100": VOLTA, "a100": AMPERE, "h100": HOPPER, "h200": HOPPER, "b200": BLACKWELL, "b300": BLACKWELL}
FASTEST_GBIT_S = {VOLTA: 1200, AMPERE: 2400, HOPPER: 3600, BLACKWELL: 7200}  # 6, 12, 18 and 18 links
# The part of a link's rate that a copy reaches: NCCL 2.30 (src/graph/topo.h) counts 20, 20, 20.6 and 40.1 GB/s for the
# links of these generations, which carry 25, 25, 25 and 50.
USABLE = {VOLTA: 20 / 25, AMPERE: 20 / 25, HOPPER: 20.6 / 25, BLACKWELL: 40.1 / 50}

INTEL, AMD = "intel", "amd"


def generation_of(rate_gbit_s: float) -> int:
    """The oldest generation of NVLink that is as fast."""
    return next((each for each in GENERATIONS if rate_gbit_s <= FASTEST_GBIT_S[each]), BLACKWELL)


@dataclass(frozen=True)
class Machine:
    """`servers` with `gpus` each. Bytes per second of a GPU's NVLink (raw), and of the NICs of a server together (raw).
    `path_s`: seconds of cables and switches between two servers. `is_switched`: through NVSwitch, which sums if `sums`
    (NVLink SHARP). `folds`: the network's switches sum. `message_s`: software time of a message of ours. `processor`:
    the maker of the one that hands messages to the NICs."""

    servers: int
    gpus: int
    nvlink_bytes_s: float
    nics_bytes_s: float
    path_s: float
    generation: int
    is_switched: bool = True
    sums: bool = False
    folds: bool = False
    message_s: float = 10e-6
    processor: str = INTEL

    @property
    def world(self) -> int:
        """All GPUs."""
        return self.servers * self.gpus

    @property
    def inside_bytes_s(self) -> float:
        """The rate at which a GPU copies over NVLink."""
        return self.nvlink_bytes_s * USABLE[self.generation]

    def stages_inside(self, tensor: int, pipeline: int) -> int:
        """How many stages of a pipeline share a server; the servers are divided among the others. 0: these servers
        cannot be divided evenly. `tensor`: the GPUs that divide every matrix of a stage."""
        inside = pipeline // math.gcd(self.servers, pipeline)
        return 0 if self.gpus % (tensor * inside) else inside

    def divided(self, tensor: int, pipeline: int = 1) -> Machine:
        """The GPUs that hold the same part of the model: one of each tensor-parallel group of a stage. They have their
        part of the NICs. NVSwitch sums only for all GPUs of a server."""
        inside = self.stages_inside(tensor, pipeline) if pipeline > 1 else 1
        groups = tensor * inside
        servers = self.servers * inside // pipeline
        if groups == 1:
            return replace(self, servers=servers)
        gpus, nics = self.gpus // groups, self.nics_bytes_s / groups
        return replace(self, servers=servers, gpus=gpus, nics_bytes_s=nics, sums=False)

    def shares(self, group: int) -> bool:
        """Whether these GPUs are whole groups of so many, each in one server or in whole ones."""
        return self.gpus % group == 0 or (group % self.gpus == 0 and self.servers % (group // self.gpus) == 0)

    def one_of_each(self, group: int) -> Machine:
        """One GPU of each group of so many, with its part of the NICs."""
        if group == 1:
            return self
        inside = min(group, self.gpus)
        servers, gpus = self.servers * inside // group, self.gpus // inside
        return replace(self, servers=servers, gpus=gpus, nics_bytes_s=self.nics_bytes_s / inside, sums=False)

    def within(self, group: int) -> Machine:
        """One group of so many GPUs. They have their part of the NICs. NVSwitch sums only for all GPUs of a server."""
        inside = min(group, self.gpus)
        if group == self.world:
            return self
        nics, sums = self.nics_bytes_s * inside / self.gpus, self.sums and inside == self.gpus
        return replace(self, servers=group // inside, gpus=inside, nics_bytes_s=nics, sums=sums)

    def one_server(self) -> Machine:
        """The GPUs of one server."""
        return replace(self, servers=1)
