"""Folds in flight. They are submitted to the engine in the caller's order. The thread that waits for a fold completes
it, or one thread per process group does.

The engine returns a ticket for every collective. `Folds` keeps the data of a ticket (the buffers, which must stay
alive, and the function that finishes the fold) until the engine reports the ticket. Then it completes the Work. After a
failure of the job, every later fold fails at once with the same reason.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from netfold.collective_record import Recorder
from netfold.engines import Reducer
from netfold.torch.calls import Call
from netfold.torch.work import DrivenWork, FoldWork, MessageWork

POLL_S = 1.0  # longest sleep in the engine; its close() wakes the thread
LOOK_S = 0.0001  # at a message that no thread waits for
SWEEP_AT = 64  # works in flight, before messages for which no thread waits are looked at
TURN_S = 0.01  # of a caller that drives: another caller may have completed its work meanwhile
JOIN_S = 5.0


@dataclass
class Fold:
    """A collective and the Work that the user holds."""

    call: Call
    work: FoldWork
    number: int = 0  # in the record
    parts_left: int = 1


class Folds(ABC):
    """Owns a rank's engine: submits folds to it and completes their works. Subclasses differ in the thread that listens
    for completions."""

    def __init__(self, client: Reducer, recorder: Recorder | None = None) -> None:
        self._client: Reducer | None = client
        self.beside: Callable[[], BaseException | None] | None = None
        """Says whether the engine beside this one has failed: then all folds fail too, within POLL_S."""
        self._recorder = recorder
        self._lock = threading.Lock()
        self._in_flight: dict[int, Fold] = {}
        self._last_stats: dict[str, Any] = {}
        self._closing = False
        self.error: BaseException | None = None

    def _fail_with_beside(self) -> None:
        failure = self.beside() if self.beside is not None else None
        if failure is None:
            return
        self.fail(failure, str(failure)[:500])

    @abstractmethod
    def new_work(self, devices: list[torch.device], awaited: bool = False) -> FoldWork:
        """A work for a fold submitted here. `devices`: see FoldWork. `awaited`: the caller waits at once."""

    @abstractmethod
    def new_message(self, devices: list[torch.device]) -> FoldWork:
        """A work for a message: its caller waits soon, late or never."""

    def _is_left_to_waiter(self, work: FoldWork) -> bool:
        """Whether the engine reports this fold only to the thread that waits for it."""
        return False

    @abstractmethod
    def step_aside(self) -> None:
        """Called before an operation that may wait for a fold."""

    @abstractmethod
    def _end(self) -> None:
        """Called when the engine is closed: end the thread that listens to it."""

    def submit(self, fold: Fold) -> None:
        """Start a fold. All of its errors, also errors at the start, arrive through its work."""
        self.step_aside()
        with self._lock:  # the engine may report a ticket before it is stored here: _run takes the same lock
            error = self.error
            if error is None:
                if self._recorder is not None:
                    is_message = isinstance(fold.work, MessageWork)
                    fold.number = self._recorder.begin(fold.call.name, fold.call.size_bytes, is_message)
                try:
                    assert self._client is not None, "the engine was closed without an error"
                    if fold.call.parts:
                        self._submit_parts(fold, self._client)
                    else:
                        ticket = fold.call.start(self._client, self._is_left_to_waiter(fold.work))
                        self._in_flight[ticket] = fold
                        fold.work.ticket = ticket
                    return
                except Exception as refused:  # also TypeError, from the binding
                    error = refused
        self._record_end(fold, error)
        fold.work.complete([], error)

    def _submit_parts(self, fold: Fold, client: Reducer) -> None:
        """The device waits for the engine by itself: nothing is left to do at the end but to complete the work."""
        fold.parts_left = len(fold.call.parts)
        for part in fold.call.parts:
            fold.work.copied_back = part.submit(client, lambda ticket: self._in_flight.__setitem__(ticket, fold))

    def _record_end(self, fold: Fold, error: BaseException | None) -> None:
        if self._recorder is not None:
            self._recorder.end(fold.number, str(error) if error is not None else "")

    def abandon(self, fold: Fold, error: Exception, reason: str) -> None:
        """End the job because a fold cannot be submitted: later folds would match other folds of the other ranks. The
        other ranks get `reason`."""
        self._note(error)
        fold.work.complete([], error)
        self.close(reason)

    def fail(self, error: BaseException, reason: str) -> None:
        """End the job because of an error beside it. The other ranks get `reason`."""
        self._note(error)
        self.close(reason)

    def _note(self, error: BaseException) -> None:
        with self._lock:
            if self.error is None:
                self.error = error

    def works_in_flight(self) -> list[FoldWork]:
        """Works of the collectives that have not ended, oldest first."""
        with self._lock:
            works = [fold.work for fold in self._in_flight.values()]
        return [work for work in works if not isinstance(work, MessageWork)]

    def stats(self) -> dict[str, Any]:
        """The engine's counters; after `close`, their last values."""
        return self._client.stats() if self._client is not None else self._last_stats

    def set_timeout(self, timeout_s: float) -> None:
        """How long a collective may make no progress, from now on."""
        if self._client is not None:
            self._client.set_timeout(timeout_s)

    def close(self, reason: str = "") -> None:
        """Leave the job and end the thread. Folds that are not done fail. A reason tells the other ranks that this rank
        failed. Any thread may call it, also twice."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            if self.error is None:
                self.error = RuntimeError("netfold: the process group was shut down with this collective in flight")
        client = self._client
        assert client is not None, "closed once"
        client.close(reason)
        self._end()
        self._take_rest(client)
        self._last_stats = client.stats()
        self._client = None  # torch may keep this object until the process ends; the sockets must close now

    def leave_to_parent(self, error: BaseException) -> None:
        """In a child of fork(): the engine is the parent's. Folds fail with `error`; close() does nothing."""
        self._lock = threading.Lock()  # a thread of the parent may have held it
        self._closing = True
        self._client, self._in_flight, self.error = None, {}, error

    def _complete(self, ticket: int, error: BaseException | None) -> None:
        with self._lock:
            fold = self._in_flight.pop(ticket, None)
            if error is not None and self.error is None:
                self.error = error
            if fold is not None:
                fold.parts_left -= 1
        if fold is None or fold.work.is_completed():  # it failed with the whole group, or with another part
            return
        if fold.parts_left > 0 and error is None:
            return
        self._record_end(fold, error)
        if error is not None:  # once the group is closed, why it was closed
            fold.work.complete([], self.error if self._closing else error)
            return
        try:
            with fold.call.completing():
                fold.work.complete(fold.call.finish())
        except (
            Exception
        ) as failed:  # a copy back to a device may fail: the user gets the error, and the thread continues
            if not fold.work.is_completed():
                fold.work.complete([], failed)

    def _take_rest(self, client: Reducer) -> None:
        """Complete the folds that the closed engine had done, and fail the others. Folds that another thread has taken
        from the engine are completed there."""
        with self._lock:
            tickets = list(self._in_flight)
        for ticket in tickets:
            try:
                if client.wait(ticket, 0.0):
                    self._complete(ticket, None)
            except RuntimeError:
                self._complete(ticket, self.error)

    def _fail_all(self, error: BaseException | None) -> None:
        with self._lock:
            if self.error is None:
                self.error = error
            folds, self._in_flight = list(self._in_flight.values()), {}
        for fold in folds:
            if fold.work.is_completed():  # with another part of it
                continue
            self._record_end(fold, self.error)
            fold.work.complete([], self.error)


class CompletionThread(Folds):
    """A thread listens for all folds except those that their callers wait for at once. To wake the thread, and to be
    woken by it, takes longer than a small all-reduce."""

    def __init__(self, client: Reducer, name: str, recorder: Recorder | None = None) -> None:
        super().__init__(client, recorder)
        self._name = f"netfold-{name}"
        self._start_thread()

    def new_work(self, devices: list[torch.device], awaited: bool = False) -> FoldWork:
        """A work that the thread completes, or the thread that waits for it."""
        return DrivenWork(devices, self.step_aside, self._await) if awaited else FoldWork(devices, self.step_aside)

    def new_message(self, devices: list[torch.device]) -> FoldWork:
        """A work that the thread that waits for it completes, or a later message if no thread ever waits."""
        if len(self._in_flight) > SWEEP_AT:
            self._sweep()
        return MessageWork(devices, self.step_aside, self._await, LOOK_S)

    def _sweep(self) -> None:
        for work in [fold.work for fold in list(self._in_flight.values()) if isinstance(fold.work, MessageWork)]:
            self._await(work, LOOK_S)

    def _is_left_to_waiter(self, work: FoldWork) -> bool:
        return isinstance(work, DrivenWork)

    def _await(self, work: FoldWork, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        client = self._client
        while client and not (work.is_completed() or self._closing) and (left_s := deadline - time.monotonic()) > 0:
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
        """If the caller is a callback in this thread, another thread takes over the completions. DDP hooks such as
        PowerSGD submit all-reduces, and wait for them, inside `then`."""
        if threading.current_thread() is self._thread:
            self._start_thread()

    def _end(self) -> None:
        if threading.current_thread() is not self._thread:
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        client = self._client
        while client and not self._closing:
            if threading.current_thread() is not self._thread:
                return  # another thread took over
            try:
                report = client.next_completion(POLL_S)
            except RuntimeError as error:
                self._fail_all(error)
                return
            if report is not None:
                self._complete(*report)
            else:
                self._fail_with_beside()


class CallerDriven(Folds):
    """The thread that asks a work for its result drives the engine until the result is there: Netfold has no thread."""

    def new_work(self, devices: list[torch.device], awaited: bool = False) -> FoldWork:
        """A work that drives the engine while a thread waits for it or takes its future."""
        return DrivenWork(devices, self.step_aside, self._drive)

    def new_message(self, devices: list[torch.device]) -> FoldWork:
        """A work that drives the engine while a thread waits, and for a moment if it is asked whether it is over."""
        return MessageWork(devices, self.step_aside, self._drive, LOOK_S)

    def step_aside(self) -> None:
        """There is no thread that its own callbacks could block."""

    def _drive(self, work: FoldWork, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        client = self._client
        while client and not (work.is_completed() or self._closing) and (left_s := deadline - time.monotonic()) > 0:
            report = client.next_completion(min(left_s, TURN_S))
            if report is not None:
                self._complete(*report)
            else:
                self._fail_with_beside()

    def _end(self) -> None:
        """There is no thread to end."""
