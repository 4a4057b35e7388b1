"""Runs Netfold and its peers on the same links in the same run, and reports."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from netfold import algorithms
from netfold.algorithms import IN_NETWORK, SPLIT, WITH_SWITCH, HostPlan
from netfold.placement import ENGINES, THREAD
from netfold_lab.bench import bounds, measure, results, tensors
from netfold_lab.bench.sites import BLOCK, LabSite, LocalSite, Site, check_placement, places_of
from netfold_lab.bench.systems import PEERS, Netfold, NetfoldSplit, System, host_system, peer_systems
from netfold_lab.errors import UsageError
from netfold_lab.lab.cluster import Lab
from netfold_lab.lab.spec import Faults, LabSpec

FORMATS = ("fp32", "bfp", "fp16", "bf16", "int32")
NONE = "none"  # only the peers
FAULTS_BY = ("netfold", "kernel")
INTERFACES = ("python", "c", "mpi")
SIZE_DEFAULT = 16 << 20
SIZE_MAX = 8 << 30
ROW_BYTES = 64 << 20  # smaller tensors are folded faster than all ranks can start at once
ITERATIONS_MAX = 500
TIMEOUT_MAX_S = 1e6  # the core's limit


@dataclass(frozen=True)
class ComparisonSettings:
    """Settings of a measurement. Sizes have names and are in bytes. `algorithm`: Netfold's, one or several with commas,
    or none.

    `bigraph` and `group` are arguments of HostPlan. `engine` is the engine of host algorithms. `interface` is the
    interface through which ranks call Netfold. `iterations` is the number of consecutive all-reduces in one timed
    repetition; 0: enough for 64 MiB. `placement`, one of sites.PLACEMENTS, maps ranks to workers."""

    sizes: dict[str, int]
    algorithm: str = IN_NETWORK
    wire: str = "fp32"
    against: tuple[str, ...] = ("gloo", "openmpi")
    repeat: int = 5
    timeout_s: float = 60.0
    seed: int = 1
    faults: Faults = field(default_factory=Faults)
    faults_by: str = "netfold"
    block: int = 16
    mantissa: int = 7
    bigraph: tuple[int, int] = (0, 0)
    group: int = 0
    interface: str = "python"
    iterations: int = 1
    engine: str = THREAD
    placement: str = BLOCK

    def __post_init__(self) -> None:
        self._check_choices()
        if self.faults and self.faults_by == "netfold" and (self.hosts() or self.is_split()):
            raise UsageError(
                "--faults-by netfold needs --algorithm in-network: TCP hides such faults. Use --faults-by kernel"
            )
        if self.algorithm == NONE and not self.against:
            raise UsageError("nothing to measure: --algorithm none leaves only the peers, and --against is empty")
        names = set(self.algorithm.split(","))
        if self.interface != "python" and {*WITH_SWITCH, "hdrm", "hierarchical"} & names:
            raise UsageError(
                f"--interface {self.interface} needs an --algorithm without a switch and a topology, such as auto"
            )
        if self.interface == "mpi" and len(names) > 1:
            raise UsageError("--interface mpi measures one algorithm: it is a setting of the whole program")
        if self.iterations < 0:
            raise UsageError(f"--iterations must be 0 or more, not {self.iterations}")
        if self.repeat < 1:
            raise UsageError(f"--repeat must be at least 1, not {self.repeat}")
        if self.seed < 0:
            raise UsageError(f"--seed must be 0 or more, not {self.seed}")
        if not 0 < self.timeout_s <= TIMEOUT_MAX_S:
            raise UsageError(
                f"--timeout-s must be a positive number of seconds, to {TIMEOUT_MAX_S:g}, not {self.timeout_s}"
            )
        for size in self.sizes.values():
            if size % tensors.ELEMENT_BYTES or not 0 < size <= SIZE_MAX:
                raise UsageError(f"--size-bytes must be a multiple of 4 from 4 to {SIZE_MAX}, not {size}")

    def _check_choices(self) -> None:
        known = (*algorithms.choices(), NONE) if self.algorithm not in (IN_NETWORK, NONE) else (self.algorithm,)
        for name in self.algorithm.split(","):
            if name not in known or (name == NONE and self.algorithm != NONE):
                raise UsageError(f"--algorithm must be one of {', '.join(known)}, not {self.algorithm}")
        if self.wire not in FORMATS:
            raise UsageError(f"--format must be one of {', '.join(FORMATS)}, not {self.wire}")
        if self.engine not in ENGINES:
            raise UsageError(f"--engine must be one of {', '.join(ENGINES)}, not {self.engine}")
        if self.engine != THREAD and self.interface != "python":
            raise UsageError(f"--engine {self.engine} needs --interface python")
        if self.engine != THREAD and (self.is_in_network() or self.is_split()):
            raise UsageError(f"--engine {self.engine} needs a host algorithm, such as --algorithm ring")
        for peer in self.against:
            if peer not in PEERS:
                raise UsageError(f"--against takes {', '.join(PEERS)}, not {peer}")
        if self.interface not in INTERFACES:
            raise UsageError(f"--interface must be one of {', '.join(INTERFACES)}, not {self.interface}")
        check_placement(self.placement)
        if self.faults_by not in FAULTS_BY:
            raise UsageError(f"--faults-by must be one of {', '.join(FAULTS_BY)}, not {self.faults_by}")

    def parameters(self) -> dict[str, Any]:
        """The parameters as reports name them: the format, and the sizes in bytes."""
        told = asdict(self)
        sizes, wire = told.pop("sizes"), told.pop("wire")
        return {"size_bytes": list(sizes.values()), "format": wire, **told}

    def places(self, world: int) -> list[int]:
        """The worker of each rank."""
        return places_of(self.placement, world, self.seed)

    def is_in_network(self) -> bool:
        """Whether a switch takes part."""
        return IN_NETWORK in self.algorithm.split(",")

    def is_split(self) -> bool:
        """Whether a switch and the ranks share tensors."""
        return SPLIT in self.algorithm.split(",")

    def hosts(self) -> list[HostPlan]:
        """Netfold's algorithms in this plan that do not need a switch."""
        names = dict.fromkeys(self.algorithm.split(","))
        return [HostPlan(name, self.bigraph, self.group) for name in names if name not in (*WITH_SWITCH, NONE)]

    def iterations_of(self, size_bytes: int) -> int:
        """The number of consecutive all-reduces of this size."""
        return self.iterations or max(1, min(ROW_BYTES // size_bytes, ITERATIONS_MAX))

    def check(self, world: int) -> None:
        """Raises UsageError if an algorithm does not support this number of ranks."""
        for hosts_plan in self.hosts():
            try:
                hosts_plan.check(world)
            except ValueError as error:
                raise UsageError(f"--algorithm {hosts_plan.algorithm} for {world} ranks: {error}") from None

    def steps(self) -> int:
        """The number of repetitions, for a progress bar."""
        own = (self._by_switch() + len(self.hosts())) * (1 + bool(self.faults))
        return len(self.sizes) * (self.repeat + 1) * (self._of_peers() + own)

    def link_seconds(self, world: int, rate_mbit_s: float) -> float:
        """The least time that links of this rate (above 0) need for all repetitions, in seconds. With a switch a worker
        sends a tensor once, without one 2 (world - 1) / world times."""
        around = 2 * (world - 1) / world
        sent = 0.0
        for size in self.sizes.values():
            own = bounds.payload_bytes(size // tensors.ELEMENT_BYTES, self.wire, self.block, self.mantissa)
            sent += own * (self._by_switch() + len(self.hosts()) * around) * (1 + bool(self.faults))
            sent += size * self._of_peers() * around
        return bounds.seconds(round((self.repeat + 1) * sent), rate_mbit_s)

    def _by_switch(self) -> int:
        return self.is_in_network() + self.is_split()

    def _of_peers(self) -> int:
        return sum(len(PEERS[peer].algorithms) for peer in self.against)


def _contestants(settings: ComparisonSettings, site: Site, stack: ExitStack) -> list[measure.Contestant]:
    """Launch the ranks of all systems. With faults, Netfold also runs on clean links, for comparison.

    Faults by netfold are in Netfold's clients, so the peers' links stay clean. Faults in the kernel affect all systems.
    """

    def team(system: Any) -> measure.Team:
        return stack.enter_context(measure.Team(system, site, settings.timeout_s))

    found = []
    words = settings.faults.text(settings.seed) if settings.faults else ""
    in_kernel = bool(settings.faults) and settings.faults_by == "kernel"
    ours: list[System] = [Netfold()] if settings.is_in_network() else []
    if settings.is_split():
        ours.append(NetfoldSplit())

    def folding(hosts: list[HostPlan]) -> System:
        return host_system(hosts, settings.interface, settings.wire, settings.engine)

    for system in [*ours, *([folding(hosts)] if (hosts := settings.hosts()) else [])]:
        clean = team(system)
        found.append(measure.Contestant(clean))
        if in_kernel:
            found.append(measure.Contestant(clean, f"kernel: {words.rpartition(',seed')[0]}", kernel_faults=True))
        elif settings.faults:
            found.append(measure.Contestant(team(Netfold(words)), f"netfold: {words}"))
    for peer in settings.against:
        suffers = f"kernel: {words.rpartition(',seed')[0]}" if in_kernel else ""
        found += [measure.Contestant(team(system), suffers, in_kernel) for system in peer_systems(peer, site)]
    return found


def compare_on(
    site: Site,
    settings: ComparisonSettings,
    burst_bytes: int,
    set_faults: Callable[[bool], None],
    progress: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Measure all sizes on one site."""
    series: list[measure.Series] = []
    dtype = "int32" if settings.wire == "int32" else "fp32"
    with ExitStack() as stack:
        progress("starting every rank")
        contestants = _contestants(settings, site, stack)
        for name, size_bytes in settings.sizes.items():
            tensor = tensors.make(site.directory, name, size_bytes, dtype, site.world, settings.seed)
            iterations = settings.iterations_of(size_bytes)
            series += measure.measure(
                contestants, site, tensor, settings.wire, settings.repeat, set_faults, progress, iterations
            )
            tensors.discard(tensor)
    entries = [results.entry(one, site, burst_bytes, settings.block, settings.mantissa) for one in series]
    return results.compare(entries)


def in_lab(spec: LabSpec, settings: ComparisonSettings, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measure in a lab of its own, which is removed afterwards."""
    with Lab(spec) as lab:
        in_force = False
        if settings.faults and settings.faults_by == "kernel":
            lab.set_offloads(False)  # for clean repetitions too, so that both are comparable

        def set_faults(wanted: bool) -> None:
            nonlocal in_force
            if wanted != in_force:
                lab.set_faults(settings.faults if wanted else Faults())
                in_force = wanted

        site = LabSite(lab, settings.places(spec.workers))
        return compare_on(site, settings, spec.burst_bytes, set_faults, progress)


def locally(workers: int, settings: ComparisonSettings, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measure on this machine's loopback."""
    with LocalSite(workers) as site:
        return compare_on(site, settings, 0, lambda wanted: None, progress)


def peers_of(text: str) -> tuple[str, ...]:
    """`gloo,openmpi` as a tuple; `none` as an empty one."""
    return tuple(dict.fromkeys(part for part in text.split(",") if part and part != "none"))


def bigraph_of(text: str) -> tuple[int, int]:
    """`4x8` as two numbers; zeros for an empty text."""
    try:
        return algorithms.bigraph_of(text) if text else (0, 0)
    except ValueError as error:
        raise UsageError(f"--bigraph: {error}") from None
