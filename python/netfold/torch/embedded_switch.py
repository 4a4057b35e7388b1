"""A switch in rank 0's own process, for `torchrun train.py` with nothing else running.

Process groups with the same rank 0 share one. It outlives its groups a little: rank 0 may be done while another rank
still fetches the last result, so the process waits, bounded, until the switch has no workers left.
"""

from __future__ import annotations

import threading
import time
from typing import Any, ClassVar

LINGER_S = 3.0  # rank 0's own last fold ended, so all contributed: the others miss at most a lost packet


def advertised(bound: str, host: str) -> str:
    """The address to give to others for what listens at `bound`: with `host` where that names every address."""
    everywhere, _, port = bound.rpartition(":")
    return f"{host}:{port}" if everywhere in ("0.0.0.0", "[::]", "::") else bound


class EmbeddedSwitch:
    """A counted reference to a `netfold._core.Switch`."""

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _running: ClassVar[dict[tuple[str, str, bool], EmbeddedSwitch]] = {}

    def __init__(self, key: tuple[str, str, bool], switch: Any, address: str) -> None:
        self._key = key
        self._switch = switch
        self._holders = 0
        self.address = address

    @classmethod
    def hold(cls, bind: str, host: str, secret: str, require_auth: bool) -> EmbeddedSwitch:
        """Start a switch at `bind` ("host:port"), or share the one this process started so; `release` it later.

        `host` is advertised where `bind` names every address. Raises RuntimeError if the address cannot be bound.
        """
        from netfold import _core

        with cls._lock:
            key = (bind, secret, require_auth)
            held = cls._running.get(key)
            if held is None:
                switch = _core.Switch(bind, secret=secret, require_auth=require_auth)
                held = cls(key, switch, advertised(switch.address, host))
                cls._running[key] = held
            held._holders += 1
            return held

    def stats(self) -> dict[str, Any]:
        """The switch's counters."""
        return self._switch.stats()

    def release(self, linger: bool) -> None:
        """Give the reference back. The last closes the switch; `linger`: once its workers left, or LINGER_S later."""
        with self._lock:
            self._holders -= 1
            if self._holders > 0:
                return
            self._running.pop(self._key, None)
        deadline = time.monotonic() + (LINGER_S if linger else 0.0)
        while time.monotonic() < deadline and self._switch.stats().get("jobs"):
            time.sleep(0.01)
        self._switch.close()
