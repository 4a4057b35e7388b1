"""The topology file: it names the host at each sub-node of each switch of a BiGraph.

    upper:                                # the switches of one half, and the hosts attached to each
      switch-1: [10.0.0.11, 10.0.0.12]
      switch-2: [10.0.0.13, 10.0.0.14]
      ...
    lower:                                # the switches of the other half
      switch-5: [...]
      ...

The file is YAML, or JSON, which is YAML too. It names a host by the address that the host uses in the job, or by its
host name. One worker runs on each host. A machine with several NICs is one host per NIC, named by address. The file may
also contain the other keys that the planner reads (PLANNED): one file serves both.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from netfold.topology.wiring import BIGRAPH, Wiring, check_shape

HALVES = ("upper", "lower")
PLANNED = ("name", "fabric", "servers", "compute", "software", "prices", "ranks")  # of a cluster file, netfold_lab/plan
NAMED_MAX = 8  # hosts in one message


@dataclass(frozen=True)
class Topology:
    """A BiGraph with its hosts by position: the upper half's switches first, `sub_nodes` hosts each."""

    sub_nodes: int
    switches: int
    hosts: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Sub-nodes x switches, as HDRM expects them."""
        return self.sub_nodes, self.switches

    @property
    def digest(self) -> str:
        """A digest of the content: equal on all ranks whose files have the same content."""
        return hashlib.sha256(repr((self.shape, self.hosts)).encode()).hexdigest()[:16]

    def order(self, names_by_rank: Sequence[Sequence[str]]) -> list[int]:
        """The rank at each position. `names_by_rank`: the names of each rank's host, its address first.

        Raises ValueError naming the ranks or hosts that do not fit.
        """
        position = {host: at for at, host in enumerate(self.hosts)}
        found = [sorted({position[name] for name in names if name in position}) for names in names_by_rank]
        for rank, (places, names) in enumerate(zip(found, names_by_rank, strict=True)):
            said = " or ".join(dict.fromkeys(names))
            if not places:
                raise ValueError(f"rank {rank} runs on {said}, which the topology file does not name")
            if len(places) > 1:
                both = " and ".join(self.hosts[at] for at in places)
                raise ValueError(f"the topology file names the host of rank {rank} twice, as {both}: leave one out")
        order = [-1] * len(self.hosts)
        for rank, (place,) in enumerate(found):
            if order[place] >= 0:
                raise ValueError(
                    f"ranks {order[place]} and {rank} both run on {self.hosts[place]}, a single sub-node of the "
                    "topology file: write the address of each NIC there, and give each rank its own as NETFOLD_BIND"
                )
            order[place] = rank
        if absent := [self.hosts[place] for place, rank in enumerate(order) if rank < 0]:
            raise ValueError(f"the topology file names {_listed(absent)}, where no rank of this job runs")
        return order


def read(path: str | Path) -> Topology:
    """Read a topology file. Raises ValueError that names the file and what is wrong in it."""
    try:
        content = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=Loader)
    except OSError as error:
        raise ValueError(f"the topology file {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"the topology file {path} is not valid YAML: {' '.join(str(error).split())}") from None
    try:
        return topology_of(content)
    except ValueError as error:
        raise ValueError(f"the topology file {path}: {error}") from None


def write(path: Path, topology: Topology) -> None:
    """Write a topology file that names the switches by half and number."""
    wiring = Wiring(BIGRAPH, *topology.shape)
    halves: dict[str, dict[str, list[str]]] = {half: {} for half in HALVES}
    for at, host in enumerate(topology.hosts):
        name = wiring.name_of(wiring.switch_of(at))
        halves[name.split()[0]].setdefault(name.replace(" ", "-"), []).append(host)
    path.write_text(yaml.safe_dump(halves, sort_keys=False, default_flow_style=None))


class Loader(yaml.SafeLoader):
    """A YAML reader that rejects duplicate keys: otherwise a switch would disappear silently."""


def _mapping(loader: Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = Counter(loader.construct_object(key) for key, _ in node.value)
    for key, times in keys.items():
        if times > 1:
            raise yaml.constructor.ConstructorError(None, None, f"{key} comes {times} times", node.start_mark)
    return {loader.construct_object(key): loader.construct_object(value, deep=True) for key, value in node.value}


Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def topology_of(content: Any) -> Topology:
    """Read the content of a file. Raises ValueError."""
    if not isinstance(content, dict) or set(content) - set(PLANNED) != set(HALVES):
        raise ValueError("write only `upper:` and `lower:` at the top level")
    switches: dict[str, list[str]] = {}
    sizes = []
    for half in HALVES:
        if not isinstance(content[half], dict) or not content[half]:
            raise ValueError(f"under `{half}:` write the name of each switch and its hosts, as s1: [host1, host2]")
        for switch, hosts in content[half].items():
            if switch in switches:
                raise ValueError(f"switch {switch} is in both halves")
            switches[switch] = _hosts(switch, hosts)
        sizes.append(len(content[half]))
    if sizes[0] != sizes[1]:
        raise ValueError(f"{sizes[0]} upper and {sizes[1]} lower switches: a BiGraph has two equal halves")
    first, sub_nodes = next((name, len(hosts)) for name, hosts in switches.items())
    for switch, hosts in switches.items():
        if len(hosts) != sub_nodes:
            raise ValueError(
                f"switch {switch} has {len(hosts)} hosts, {first} has {sub_nodes}: all switches need the same number"
            )
    check_shape(sub_nodes, len(switches))
    every = [host for hosts in switches.values() for host in hosts]
    if twice := [host for host, times in Counter(every).items() if times > 1]:
        raise ValueError(f"it names {_listed(twice)} twice")
    return Topology(sub_nodes, len(switches), tuple(every))


def _hosts(switch: str, hosts: Any) -> list[str]:
    if not isinstance(hosts, list) or not hosts:
        raise ValueError(f"switch {switch} needs a list of hosts, such as [host1, host2]")
    if strange := [host for host in hosts if not isinstance(host, str) or not host.strip()]:
        raise ValueError(f"switch {switch}: {strange[0]!r} is not a string: write the host's name or address in quotes")
    return [host.strip() for host in hosts]


def _listed(hosts: Sequence[str]) -> str:
    more = f" and {len(hosts) - NAMED_MAX} more" if len(hosts) > NAMED_MAX else ""
    return ", ".join(hosts[:NAMED_MAX]) + more
