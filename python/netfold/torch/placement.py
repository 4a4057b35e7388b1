"""Where a group's engine runs (NETFOLD_ENGINE): in the thread that waits, in a thread of its own, or in an agent."""

from __future__ import annotations

import os
from typing import Any

from netfold.agent import PrivateAgent
from netfold.torch.completion import CallerDriven, CompletionThread, Folds
from netfold.torch.settings import AGENT, CALLER, Settings


class Placement:
    """Makes the engine of a group where its settings want it.

    Raises RuntimeError where a worker's own agent cannot start.
    """

    def __init__(self, settings: Settings, rank: int) -> None:
        self._engine = settings.engine
        self._core = core_of(settings, rank)
        self._private: PrivateAgent | None = None
        if self._engine == AGENT and not settings.agent:
            self._private = PrivateAgent.hold(settings.cores)
        self._agent = self._private.address if self._private is not None else settings.agent

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
        return _core.HostGroup(rank, world, core=self._core, inline_progress=self._engine == CALLER, **how)

    def folds(self, client: Any, name: str) -> Folds:
        """Who completes the folds of `client`."""
        return CallerDriven(client) if self._engine == CALLER else CompletionThread(client, name)

    def release(self) -> None:
        """Once the engine is closed."""
        if self._private is not None:
            self._private.release()
            self._private = None


def core_of(settings: Settings, rank: int) -> int:
    """The core that this rank's progress thread is pinned to, -1 for none."""
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    return settings.cores[local_rank % len(settings.cores)] if settings.cores else -1
