"""The engine of a group of one rank: it copies within this process."""

from __future__ import annotations

import ctypes
from typing import Any

from netfold.errors import NetfoldError

ELEMENT_BYTES = {
    **dict.fromkeys(("int8", "uint8", "bool"), 1),
    **dict.fromkeys(("int16", "uint16", "fp16", "bf16"), 2),
    **dict.fromkeys(("int32", "uint32", "fp32"), 4),
    **dict.fromkeys(("int64", "uint64", "fp64", "complex64"), 8),
    "complex128": 16,
}


class LoneEngine:
    """Has the methods of an engine among ranks. A collective is over when its method returns."""

    def __init__(self) -> None:
        self._last = 0
        self._unreported: list[int] = []

    def _done(self) -> int:
        self._last += 1
        self._unreported.append(self._last)
        return self._last

    def _copy(self, in_ptr: int, out_ptr: int, count: int, dtype: str) -> int:
        if in_ptr != out_ptr and count:
            ctypes.memmove(out_ptr, in_ptr, count * ELEMENT_BYTES[dtype])
        return self._done()

    def all_reduce(self, in_ptr: int, out_ptr: int, count: int, dtype: str, *_: Any, **__: Any) -> int:
        """The sum of one rank's elements."""
        return self._copy(in_ptr, out_ptr, count, dtype)

    reduce_scatter = all_reduce

    def collect(self, collective: str, in_ptr: int, out_ptr: int, count: int, dtype: str, *_: Any, **__: Any) -> int:
        """Any collective that leaves one rank with its own elements."""
        return self._copy(in_ptr, out_ptr, count, dtype)

    def exchange(
        self, collective: str, in_ptr: int, out_ptr: int, dtype: str, sends: list[int], *_: Any, **__: Any
    ) -> int:
        """A copy of the part that this rank has for itself."""
        return self._copy(in_ptr, out_ptr, sum(sends), dtype)

    def barrier(self, awaited: bool = False) -> int:
        """Ends at once."""
        return self._done()

    def send(self, *_: Any, **__: Any) -> int:
        """Raises ValueError."""
        raise ValueError("netfold: a group of one rank has no other rank to send to or to receive from")

    receive = send

    def wait(self, ticket: int, timeout_s: float = 0.0) -> bool:
        """Every collective is done."""
        if ticket in self._unreported:
            self._unreported.remove(ticket)
        return True

    def next_completion(self, timeout_s: float) -> tuple[int, NetfoldError | None] | None:
        """The next ticket that was not reported."""
        return (self._unreported.pop(0), None) if self._unreported else None

    def for_device(self, copied_ptr: int, over_ptr: int, number: int) -> None:
        """Nothing waits for a group of one rank."""

    def stats(self) -> dict[str, Any]:
        """No counters."""
        return {}

    def set_timeout(self, timeout_s: float) -> None:
        """Nothing waits for a group of one rank."""

    def close(self, reason: str = "") -> None:
        """There is nothing to leave."""
