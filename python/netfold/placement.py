"""Where a worker's engine runs (NETFOLD_ENGINE): in the thread that waits, in a thread of its own, in an agent, or in a
smart NIC; and whether it speaks RoCE."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any, ClassVar

from netfold.agent import PrivateAgent
from netfold.engines import PeerEngine, Reducer, RoceEngine
from netfold.simulated_nic import SimulatedNic

logger = logging.getLogger("netfold")

CALLER, THREAD, AGENT, NIC, ROCE = ENGINES = ("caller", "thread", "agent", "nic", "roce")
SIMULATED = "simulated"  # a NIC that the worker starts itself


class Placement:
    """Creates engines of the chosen kind. `engine` is one of ENGINES. `agent` is the socket of a running agent ("":
    this process starts its own). `cores` are the cores for the engines of this machine's workers (empty: any). `nic` is
    a NETFOLD_NIC, and `bfp` the block and mantissa that a simulated one is built for.

    Raises RuntimeError if an agent cannot start. Call `release` when the engines are closed.
    """

    _has_nic: ClassVar[bool] = False  # a group of this process drives this rank's NIC

    def __init__(
        self,
        engine: str,
        agent: str,
        cores: Sequence[int],
        rank: int,
        nic: str = "",
        bfp: tuple[int, int] = (16, 7),
    ) -> None:
        self._engine = engine
        self._core = core_of(cores, rank)
        self._nic, self._bfp = nic, bfp
        self._drives_nic = False
        self._simulated: SimulatedNic | None = None
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

        device, verbs, version, _, packets, one_way = _core.parse_roce_place(place, rank)
        settings |= {"verbs": verbs, "version": version, "message_packets": packets, "one_way": one_way}
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
        if self._engine == NIC and (nic := self._take_nic(settings["listen"])):
            return _core.NicGroup(rank, world, nic=nic, core=self._core, **settings)
        is_driven = self._engine == CALLER
        return _core.PeerGroup(rank, world, core=self._core, inline_progress=is_driven, **settings)

    def _take_nic(self, listen: str) -> str:
        """Where this rank's NIC is; "" if another group of this process drives it. A simulated one is started, and
        sends its frames from the address where the rank listens. Raises RuntimeError if it cannot start."""
        if self._nic == SIMULATED:
            self._simulated = SimulatedNic(*self._bfp, ip=listen.rpartition(":")[0])
            return self._simulated.address
        if Placement._has_nic:
            logger.info("netfold: another group drives the NIC: this group's tensors go around the ring in software")
            return ""
        Placement._has_nic = self._drives_nic = True
        return self._nic

    def release(self) -> None:
        """End the agent and the simulated NIC that this process started, unless other groups of the process use it.
        A second call does nothing."""
        if self._drives_nic:
            Placement._has_nic = self._drives_nic = False
        if self._simulated is not None:
            self._simulated.release()
            self._simulated = None
        if self._private is not None:
            self._private.release()
            self._private = None


def core_of(cores: Sequence[int], rank: int) -> int:
    """The core that this rank's progress thread is pinned to, or -1."""
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    return cores[local_rank % len(cores)] if cores else -1
