"""`Work` objects in Python: a user of the backend holds one while a collective runs.

An error must reach DDP through the future, and from a callback. `Future.set_exception` inside a Work crashes DDP, and
an exception at submission leaves DDP unusable. So each fold has a *base* future that is always completed with a value.
Users get `base.then(...)`, which raises.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from netfold.log import logger
from netfold.torch.devices import module_of


def new_future(devices: list[torch.device]) -> torch.futures.Future[Any]:
    """A future whose value is on these devices."""
    return torch.futures.Future(devices=list(devices))


class FoldWork(Work):
    """An all-reduce in flight.

    `devices` lists the CUDA devices of the result; torch's future makes their streams wait. `before_wait` is called
    before a wait blocks.
    """

    def __init__(self, devices: list[torch.device], before_wait: Callable[[], None]) -> None:
        super().__init__()
        self.ticket = 0  # the engine's ticket, after submission
        self.copied_back: Any = None  # if the device waits for the engine: the event after which it has the result
        self._before_wait = before_wait
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._on_cuda = bool(devices)
        self._base: torch.futures.Future[Any] = new_future(devices)
        self._future = self._base.then(self._unwrap)

    def _unwrap(self, base: torch.futures.Future[Any]) -> Any:
        if self._error is not None:
            raise self._error
        return base.value()

    def complete(self, value: Any, error: BaseException | None = None) -> None:
        """Complete the future with the folded tensors or with an error. The completion thread calls it once."""
        self._error = error
        try:
            self._base.set_result([] if error is not None else value)
        except Exception as failed:  # the future records events on its devices; that fails on a broken device
            self._error = error or failed
        self._done.set()

    def get_future(self) -> torch.futures.Future[Any]:
        """The future of the folded tensors; raises RuntimeError in `wait` and in callbacks if the job failed."""
        return self._future

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Block until the tensors are folded; raises RuntimeError that names the rank or the switch that failed.

        Without a timeout the wait is still bounded: the engine fails every fold within the job's timeout.
        """
        seconds = timeout.total_seconds() if timeout is not None else 0.0
        self._before_wait()
        self._wait_for_end(seconds)
        if self._error is not None:
            raise self._error
        if self._on_cuda:
            self._future.wait()  # makes the caller's current stream wait for the copy back to the device
        return True

    def _wait_for_end(self, seconds: float) -> None:
        if not self._block(seconds):
            raise RuntimeError(
                f"netfold: the all-reduce did not finish within the {seconds:.3g} s given to wait(); it continues, so "
                "wait again, or raise the process group's timeout"
            )

    def _block(self, seconds: float) -> bool:
        """Wait until the fold has ended, at most `seconds` (0: without a limit); returns whether it has ended."""
        return self._done.wait(seconds if seconds > 0 else None)

    def finish(self, seconds: float) -> bool:
        """Wait until the fold has ended, at most `seconds`, which may be 0 or less; returns whether it has ended."""
        return self._done.is_set() or (seconds > 0 and self._block(seconds))

    def is_completed(self) -> bool:
        """Whether the fold has ended, with or without an error."""
        return self._done.is_set()

    def is_success(self) -> bool:
        """Whether the fold has ended without an error."""
        return self._done.is_set() and self._error is None


def ended_work(value: Any, error: BaseException | None = None) -> FoldWork:
    """The work of a call that is over: with a value, or an error."""
    work = FoldWork([], lambda: None)
    work.complete(value, error)
    return work


class OrderedWork(FoldWork):
    """A collective of a device's tensors that are copied and awaited in the order of its streams (stream_order.py). Its
    future is completed when the collective is over, so what waits for the future gets every error."""

    def __init__(self, device: torch.device) -> None:
        super().__init__([device], lambda: None)
        self._device = device
        self._lock = threading.Lock()
        self._was_ordered = False

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Make the device's current stream wait for the result; Python goes on at once. With a timeout above 0, block
        until the collective is over first. Raises RuntimeError that names the rank or the switch if it has failed.

        It may also fail later. Then the tensors stay as they were, the error is logged, and the next collective of the
        group raises it.
        """
        seconds = timeout.total_seconds() if timeout is not None else 0.0
        if seconds > 0:
            self._wait_for_end(seconds)
        with self._lock:
            if self._error is not None:
                raise self._error
            self._was_ordered = True
        module_of(self._device).current_stream(self._device).wait_event(self.copied_back)
        return True

    def complete(self, value: Any, error: BaseException | None = None) -> None:
        """See FoldWork."""
        with self._lock:
            self._error = error
            is_late = error is not None and self._was_ordered
        if is_late:
            logger.error("netfold: the tensors of a collective that was waited for stay as they were: %s", error)
        super().complete(value, error)


class DrivenWork(FoldWork):
    """An all-reduce that advances only while a thread waits: `drive(work, seconds)` runs it, and returns when it has
    ended or the time is over. Taking the future waits as well: a caller that waits on the future (DDP does, in C++)
    would not drive."""

    def __init__(
        self,
        devices: list[torch.device],
        before_wait: Callable[[], None],
        drive: Callable[[FoldWork, float], None],
    ) -> None:
        super().__init__(devices, before_wait)
        self._drive = drive

    def _block(self, seconds: float) -> bool:
        self._drive(self, seconds if seconds > 0 else math.inf)
        return self._done.wait(
            0.0 if seconds > 0 else None
        )  # the result is still to come if the group is closed meanwhile

    def get_future(self) -> torch.futures.Future[Any]:
        """The future, completed."""
        self._drive(self, math.inf)
        return super().get_future()


class MessageWork(DrivenWork):
    """A send or receive. A thread that waits for it does the work, but a caller may also never wait, or only ask
    whether it is over; `look_s` is how long (seconds) such a question may drive the engine."""

    def __init__(
        self,
        devices: list[torch.device],
        before_wait: Callable[[], None],
        drive: Callable[[FoldWork, float], None],
        look_s: float,
    ) -> None:
        super().__init__(devices, before_wait, drive)
        self._look_s = look_s

    def get_future(self) -> torch.futures.Future[Any]:
        """The future, which may not be complete yet."""
        if not self._done.is_set():
            self._drive(self, self._look_s)
        return self._future


class JoinedWork(Work):
    """Several works as one: `end_coalescing` returns it, and a barrier with earlier folds in flight."""

    def __init__(self, works: list[Work]) -> None:
        super().__init__()
        self._works = works
        self._future: torch.futures.Future[Any] | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Block until every part has ended; raises the first part's error."""
        for work in self._works:
            work.wait(timeout if timeout is not None else timedelta(0))
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        """A future with the values of all parts in one flat list."""
        if self._future is None:
            parts = torch.futures.collect_all([work.get_future() for work in self._works])
            self._future = parts.then(_flatten)
        return self._future

    def is_completed(self) -> bool:
        """Whether every part has ended."""
        return all(work.is_completed() for work in self._works)


def _flatten(parts: torch.futures.Future[Any]) -> list[Any]:
    values: list[Any] = []
    for part in parts.value():
        value = part.value()
        values.extend(value if isinstance(value, list | tuple) else [value])
    return values
