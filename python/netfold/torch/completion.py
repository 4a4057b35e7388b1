"""Folds in flight: submitted to the client in the caller's order, completed by those who wait for them, or by one
thread a process group.

The client hands out a ticket for every collective; `Folds` keeps what belongs to a ticket (the buffers,
which must stay alive, and how to finish) until the client reports it, then completes the Work. Once the job failed,
every later fold fails at once with the same reason.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch

from netfold.torch.host_collectives import Call
from netfold.torch.work import DrivenWork, FoldWork

POLL_S = 1.0  # a bound on sleeping in the client; its close() wakes the thread
TURN_S = 0.01  # of one caller that drives: another may have completed its work meanwhile
JOIN_S = 5.0


@dataclass
class Fold:
    """A collective and the Work that its user holds."""

    call: Call
    work: FoldWork


class Folds(ABC):
    """Owns a `netfold._core.Client`, or a HostClient: submits folds to it and completes their works. Who listens for
    completions is the subclasses' affair."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._in_flight: dict[int, Fold] = {}
        self._last_stats: dict[str, Any] = {}
        self._closing = False
        self.error: BaseException | None = None

    @abstractmethod
    def new_work(self, devices: list[torch.device], awaited: bool = False) -> FoldWork:
        """A work for a fold submitted here; `devices` as FoldWork's; `awaited`: its caller waits at once."""

    def _is_left_to_waiter(self, work: FoldWork) -> bool:
        """Whether the client is to report this one to who waits for it alone."""
        return False

    @abstractmethod
    def step_aside(self) -> None:
        """Called before something that may wait for a fold."""

    @abstractmethod
    def _end(self) -> None:
        """The client has been closed: end whatever listens to it."""

    def submit(self, fold: Fold) -> None:
        """Start a fold; its errors, also those of starting it, arrive through its work."""
        self.step_aside()
        with self._lock:  # a ticket may be reported before it is noted here: _run takes the same lock
            error = self.error
            if error is None:
                try:
                    ticket = fold.call.start(self._client, self._is_left_to_waiter(fold.work))
                    self._in_flight[ticket] = fold
                    fold.work.ticket = ticket
                    return
                except Exception as refused:  # TypeError too, from the binding
                    error = refused
        fold.work.complete([], error)

    def abandon(self, fold: Fold, error: Exception, reason: str) -> None:
        """End the job because a fold cannot be submitted: later ones would meet other folds of the other ranks, which
        learn `reason`."""
        with self._lock:
            if self.error is None:
                self.error = error
        fold.work.complete([], error)
        self.close(reason)

    def works_in_flight(self) -> list[FoldWork]:
        """Works of the folds that have not ended, oldest first."""
        with self._lock:
            return [fold.work for fold in self._in_flight.values()]

    def stats(self) -> dict[str, Any]:
        """The client's counters; after `close`, as they were then."""
        return self._client.stats() if self._client is not None else self._last_stats

    def close(self, reason: str = "") -> None:
        """Leave the job and end the thread; folds still in flight fail. A reason tells the other ranks that this one
        failed. Safe to call twice, from any thread."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            if self.error is None:
                self.error = RuntimeError("netfold: the process group was shut down with this collective in flight")
        self._client.close(reason)
        self._end()
        self._last_stats = self._client.stats()
        self._client = None  # torch may keep this object for the life of the process, but not the sockets

    def _complete(self, ticket: int, error: BaseException | None) -> None:
        with self._lock:
            fold = self._in_flight.pop(ticket, None)
            if error is not None and self.error is None:
                self.error = error
        if fold is None:  # it failed with the whole group
            return
        value: list[torch.Tensor] = []
        if error is None:
            try:
                value = fold.call.finish()
            except Exception as failed:  # a copy back to a device may fail: the user must learn it, the thread lives on
                error = failed
        fold.work.complete(value, error)

    def _fail_all(self, error: BaseException | None) -> None:
        with self._lock:
            if self.error is None:
                self.error = error
            folds, self._in_flight = list(self._in_flight.values()), {}
        for fold in folds:
            fold.work.complete([], self.error)


class CompletionThread(Folds):
    """A thread listens, but for folds that their callers wait for at once: to wake it, and to be woken by it, takes
    longer than a small all-reduce."""

    def __init__(self, client: Any, name: str) -> None:
        super().__init__(client)
        self._name = f"netfold-{name}"
        self._start_thread()

    def new_work(self, devices: list[torch.device], awaited: bool = False) -> FoldWork:
        """A work that the thread completes, or whoever waits for it."""
        return DrivenWork(devices, self.step_aside, self._await) if awaited else FoldWork(devices, self.step_aside)

    def _is_left_to_waiter(self, work: FoldWork) -> bool:
        return isinstance(work, DrivenWork)

    def _await(self, work: FoldWork, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        client = self._client
        while not (work.is_completed() or self._closing) and (left_s := deadline - time.monotonic()) > 0:
            error = None
            try:
                if not client.wait(work.ticket, min(left_s, TURN_S)):
                    continue
            except RuntimeError as failed:
                error = failed
            self._complete(work.ticket, error)

    def _start_thread(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def step_aside(self) -> None:
        """If the caller is a callback that runs in this thread (DDP hooks such as PowerSGD all-reduce, and wait, inside
        `then`), another thread takes over: nobody else would."""
        if threading.current_thread() is self._thread:
            self._start_thread()

    def _end(self) -> None:
        if threading.current_thread() is not self._thread:
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        client = self._client
        while not self._closing:
            if threading.current_thread() is not self._thread:
                return  # stepped aside
            try:
                report = client.next_completion(POLL_S)
            except RuntimeError as error:
                self._fail_all(error)
                return
            if report is not None:
                self._complete(*report)
        self._fail_all(self.error)


class CallerDriven(Folds):
    """Whoever asks a work for its result drives the engine until that is there: no thread of Netfold runs at all."""

    def new_work(self, devices: list[torch.device], awaited: bool = False) -> FoldWork:
        """A work that drives when it is waited for, or its future is taken."""
        return DrivenWork(devices, self.step_aside, self._drive)

    def step_aside(self) -> None:
        """No thread is in the way of its own callbacks."""

    def _drive(self, work: FoldWork, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        client = self._client
        while not (work.is_completed() or self._closing) and (left_s := deadline - time.monotonic()) > 0:
            report = client.next_completion(min(left_s, TURN_S))
            if report is not None:
                self._complete(*report)

    def _end(self) -> None:
        self._fail_all(self.error)
