"""A switch in rank 0's own process, for `torchrun train.py` without a separate switch.

Process groups with the same rank 0 share one switch. It stays a little longer than its groups: rank 0 may end while
another rank still receives the last result. So the process waits, for a bounded time, until the switch has no workers.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

from netfold.interfaces import in_address

if TYPE_CHECKING:
    from netfold._core import Switch

LINGER_S = 3.0  # rank 0's last fold ended, so all ranks contributed: the others miss at most a lost packet


def advertised(bound: str, host: str) -> str:
    """The address that other ranks use for the listener at `bound`: `host` replaces a wildcard address."""
    everywhere, _, port = bound.rpartition(":")
    return f"{in_address(host)}:{port}" if everywhere in ("0.0.0.0", "[::]", "::") else bound


class EmbeddedSwitch:
    """A counted reference to a `netfold._core.Switch`."""

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _running: ClassVar[dict[tuple[str, str, bool], EmbeddedSwitch]] = {}

    def __init__(self, key: tuple[str, str, bool], switch: Switch, address: str) -> None:
        self._key = key
        self._switch = switch
        self._holders = 0
        self.address = address

    @classmethod
    def hold(cls, bind: str, host: str, secret: str, require_auth: bool) -> EmbeddedSwitch:
        """Start a switch at `bind` ("host:port"), or share the one that this process started there. Call `release`
        later.

        If `bind` is a wildcard address, `host` is advertised. Raises RuntimeError if the address cannot be bound.
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

    @classmethod
    def forget_all(cls) -> None:
        """In a child of fork(): the switches are the parent's."""
        cls._lock = threading.Lock()  # a thread of the parent may have held it
        cls._running = {}

    def stats(self) -> dict[str, Any]:
        """The switch's counters."""
        return self._switch.stats()

    def release(self, linger: bool) -> None:
        """Release the reference. The last release closes the switch; with `linger` when its workers have left, at most
        LINGER_S later."""
        with self._lock:
            self._holders -= 1
            if self._holders > 0:
                return
            self._running.pop(self._key, None)
        deadline = time.monotonic() + (LINGER_S if linger else 0.0)
        while time.monotonic() < deadline and self._switch.stats().get("jobs"):
            time.sleep(0.01)
        self._switch.close()
