"""Where a worker's engine runs (NETFOLD_ENGINE): in the thread that waits, in a thread of its own, in an agent, or in a
simulated smart NIC."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from netfold import native
from netfold.agent import PrivateAgent

CALLER, THREAD, AGENT, RTL = ENGINES = ("caller", "thread", "agent", "rtl")


class Placement:
    """Makes engines where they are wanted: `engine` is one of ENGINES, `agent` the socket of a running one ("": this
    process starts its own), `cores` those that engines of this machine's workers may use (none: any), `bfp` the block
    and mantissa that a simulated NIC is built for.

    Raises RuntimeError where an own agent cannot start, or no such NIC was built. `release` it when the engines are
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

    def client(self, *where: Any, **how: Any) -> Any:
        """A `netfold._core.Client`, or one that is called alike; blocks until all workers came."""
        from netfold import _core

        if self._engine == AGENT:
            return _core.AgentClient(self._agent, *where, **how)
        return _core.Client(*where, core=self._core, **how)

    def host_group(self, rank: int, world: int, **how: Any) -> Any:
        """A `netfold._core.HostGroup`, or one that is called alike."""
        from netfold import _core

        if self._engine == AGENT:
            return _core.AgentHostGroup(self._agent, rank, world, **how)
        if self._nic is not None:
            return self._nic.NicGroup(rank, world, core=self._core, **how)
        return _core.HostGroup(rank, world, core=self._core, inline_progress=self._engine == CALLER, **how)

    def release(self) -> None:
        """End the agent that this process started, unless others of its groups use it. A second call does nothing."""
        if self._private is not None:
            self._private.release()
            self._private = None


def core_of(cores: Sequence[int], rank: int) -> int:
    """The core that this rank's progress thread is pinned to, -1 for none."""
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    return cores[local_rank % len(cores)] if cores else -1
