"""The topology file: it names the host at each sub-node of each switch of a BiGraph.

    upper:                                # the switches of one half, and the hosts attached to each
      switch-1: [10.0.0.11, 10.0.0.12]
      switch-2: [10.0.0.13, 10.0.0.14]
      ...
    lower:                                # the switches of the other half
      switch-5: [...]
      ...

The file is YAML, or JSON, which is YAML too. It names a host by the address that the host uses in the job, or by its
host name. At most one worker of a job runs on each host: a job may use a part of them. A machine with several NICs is
one host per NIC, named by address. The file may also contain the other keys that the planner reads (PLANNED): one file
serves both.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from netfold.topology.wiring import check_shape

if TYPE_CHECKING:
    from netfold.topology.places import Places

HALVES = ("upper", "lower")
PLANNED = ("name", "fabric", "servers", "compute", "software", "prices", "ranks")  # of a cluster file, netfold_lab/plan
NAMED_MAX = 8  # hosts in one message


@dataclass(frozen=True)
class Topology:
    """A BiGraph: for each half the hosts by switch."""

    upper: tuple[tuple[str, ...], ...]
    lower: tuple[tuple[str, ...], ...]

    @classmethod
    def regular(cls, sub_nodes: int, switches: int, hosts: Sequence[str]) -> Topology:
        """As many hosts at each switch; the upper half's switches come first."""
        by_switch = [tuple(hosts[at * sub_nodes : (at + 1) * sub_nodes]) for at in range(switches)]
        return cls(tuple(by_switch[: switches // 2]), tuple(by_switch[switches // 2 :]))

    @property
    def switches(self) -> tuple[tuple[str, ...], ...]:
        """The hosts by switch."""
        return (*self.upper, *self.lower)

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hosts, by position."""
        return tuple(host for hosts in self.switches for host in hosts)

    @property
    def shape(self) -> tuple[int, int]:
        """Sub-nodes x switches. Raises ValueError if switches have different numbers of hosts, or if there are not as
        many as HDRM needs for all hosts."""
        if len(self.upper) != len(self.lower):
            raise ValueError(
                f"{len(self.upper)} upper and {len(self.lower)} lower switches: a BiGraph has two equal halves"
            )
        sub_nodes = {len(hosts) for hosts in self.switches}
        if len(sub_nodes) > 1:
            raise ValueError(
                f"switches have {' or '.join(map(str, sorted(sub_nodes)))} hosts: all need the same number"
            )
        check_shape(max(sub_nodes), len(self.switches))
        return max(sub_nodes), len(self.switches)

    @property
    def digest(self) -> str:
        """A digest of the content: equal on all ranks whose files have the same content."""
        return hashlib.sha256(repr((self.upper, self.lower)).encode()).hexdigest()[:16]

    def places(self, names_by_rank: Sequence[Sequence[str]]) -> Places:
        """The places of ranks. `names_by_rank`: the names of each rank's host, its address first. Hosts without a rank
        are left out.

        Raises ValueError naming the ranks or hosts that do not fit.
        """
        from netfold.topology.places import place  # with numpy, which commands that only write a file do not need

        place_of = {host: at for at, host in enumerate(self.hosts)}
        found = [sorted({place_of[name] for name in names if name in place_of}) for names in names_by_rank]
        rank_at: dict[int, int] = {}
        for rank, (places, names) in enumerate(zip(found, names_by_rank, strict=True)):
            said = " or ".join(dict.fromkeys(names))
            if not places:
                raise ValueError(f"rank {rank} runs on {said}, which the topology file does not name")
            if len(places) > 1:
                both = " and ".join(self.hosts[at] for at in places)
                raise ValueError(f"the topology file names the host of rank {rank} twice, as {both}: leave one out")
            if places[0] in rank_at:
                raise ValueError(
                    f"ranks {rank_at[places[0]]} and {rank} both run on {self.hosts[places[0]]}, a single sub-node of "
                    "the topology file: write the address of each NIC there, and give each rank its own as NETFOLD_BIND"
                )
            rank_at[places[0]] = rank
        at = iter(range(len(self.hosts)))
        ranks = [[rank_at[place] for place in islice(at, len(hosts)) if place in rank_at] for hosts in self.switches]
        return place(ranks[: len(self.upper)], ranks[len(self.upper) :])


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
    halves = {
        half: {f"{half}-{number}": list(hosts) for number, hosts in enumerate(getattr(topology, half))}
        for half in HALVES
    }
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
    switches: set[str] = set()
    halves: list[tuple[tuple[str, ...], ...]] = []
    for half in HALVES:
        if not isinstance(content[half], dict) or not content[half]:
            raise ValueError(f"under `{half}:` write the name of each switch and its hosts, as s1: [host1, host2]")
        if both := switches & set(content[half]):
            raise ValueError(f"switch {min(both)} is in both halves")
        switches |= set(content[half])
        halves.append(tuple(tuple(_hosts(switch, hosts)) for switch, hosts in content[half].items()))
    topology = Topology(*halves)
    if twice := [host for host, times in Counter(topology.hosts).items() if times > 1]:
        raise ValueError(f"it names {_listed(twice)} twice")
    return topology


def _hosts(switch: str, hosts: Any) -> list[str]:
    if not isinstance(hosts, list) or not hosts:
        raise ValueError(f"switch {switch} needs a list of hosts, such as [host1, host2]")
    if strange := [host for host in hosts if not isinstance(host, str) or not host.strip()]:
        raise ValueError(f"switch {switch}: {strange[0]!r} is not a string: write the host's name or address in quotes")
    return [host.strip() for host in hosts]


def _listed(hosts: Sequence[str]) -> str:
    more = f" and {len(hosts) - NAMED_MAX} more" if len(hosts) > NAMED_MAX else ""
    return ", ".join(hosts[:NAMED_MAX]) + more
