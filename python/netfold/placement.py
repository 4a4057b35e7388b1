"""Where a worker's engine runs (NETFOLD_ENGINE): in the thread that waits, in a thread of its own, in an agent, or in a
simulated smart NIC; and whether it speaks RoCE."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from netfold import native
from netfold.agent import PrivateAgent
from netfold.engines import PeerEngine, Reducer, RoceEngine

CALLER, THREAD, AGENT, RTL, ROCE = ENGINES = ("caller", "thread", "agent", "rtl", "roce")


class Placement:
    """Creates engines of the chosen kind. `engine` is one of ENGINES. `agent` is the socket of a running agent ("":
    this process starts its own). `cores` are the cores for the engines of this machine's workers (empty: any). `bfp` is
    the block and mantissa that a simulated NIC is built for.

    Raises RuntimeError if an agent cannot start, or if no such NIC was built. Call `release` when the engines are
    closed.
    """

    def __init__(
        self, engine: str, agent: str, cores: Sequence[int], rank: int, bfp: tuple[int, int] = (16, 7)
    ) -> None:
        self._engine = engine
        self._core = core_of(cores, rank)
        self._nic = native.simulated_nic(*bfp) if engine == RTL else None
        self._private = PrivateAgent.hold(cores) if engine == AGENT and not agent else None
        self._agent = self._private.address if self._private is not None else agent

    def client(self, switch: str, job: str, world: int, rank: int, **settings: Any) -> Reducer:
        """A worker at a switch, with the settings of `netfold._core.SwitchGroup`; blocks until all workers joined."""
        from netfold import _core

        if self._engine == AGENT:
            return _core.AgentSwitchGroup(switch, job, world, rank, agent=self._agent, **settings)
        return _core.SwitchGroup(switch, job, world, rank, core=self._core, **settings)

    def roce_group(self, place: str, rank: int, world: int, job: int, **settings: Any) -> RoceEngine:
        """A worker over RoCE, at the endpoint that NETFOLD_ROCE describes, with the settings of
        `netfold._core.RoceGroup`."""
        from netfold import _core

        device, verbs, version, _, packets = _core.parse_roce_place(place, rank)
        settings |= {"verbs": verbs, "version": version, "message_packets": packets}
        return _core.RoceGroup(device, rank, world, job=job, epoch=0, core=self._core, **settings)

    def split_group(self, rank: int, world: int, **settings: Any) -> PeerEngine:
        """A rank that folds through switches and among the ranks, with the settings of `netfold._core.SplitGroup`."""
        from netfold import _core

        return _core.SplitGroup(rank, world, core=self._core, **settings)

    def host_group(self, rank: int, world: int, **settings: Any) -> PeerEngine:
        """A rank of a group without a switch, with the settings of `netfold._core.PeerGroup`."""
        from netfold import _core

        if self._engine == AGENT:
            return _core.AgentPeerGroup(rank, world, agent=self._agent, **settings)
        if self._nic is not None:
            group: PeerEngine = self._nic.NicGroup(rank, world, core=self._core, **settings)
            return group
        is_driven = self._engine == CALLER
        return _core.PeerGroup(rank, world, core=self._core, inline_progress=is_driven, **settings)

    def release(self) -> None:
        """End the agent that this process started, unless other groups of the process use it. A second call does
        nothing."""
        if self._private is not None:
            self._private.release()
            self._private = None


def core_of(cores: Sequence[int], rank: int) -> int:
    """The core that this rank's progress thread is pinned to, or -1."""
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    return cores[local_rank % len(cores)] if cores else -1
