"""CUDA tensors on their way through pinned memory: the current stream at each time, in each thread.

There is no CUDA device here. `FakeCuda` stands in for torch's stream functions with torch's own rules: each thread has
a current stream, `set_stream` changes it for good, and `stream(...)` for a `with` block.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from netfold.torch import staging
from netfold.torch.calls import Call
from netfold.torch.completion import CallerDriven, CompletionThread, Fold, Folds

pytestmark = pytest.mark.timeout(60)


class FakeStream:
    """A stream that records its operations."""

    def __init__(self, device: Any = None) -> None:
        self.waits_for: list[FakeStream] = []

    def wait_stream(self, other: FakeStream) -> None:
        self.waits_for.append(other)

    def record_event(self) -> None:
        """No event: the copies of this replacement are complete when they return."""


class FakeCuda:
    """torch.cuda's functions about streams."""

    Stream = FakeStream
    captures = False

    def __init__(self) -> None:
        self._of_thread = threading.local()
        self._default = FakeStream()

    def current_stream(self, device: Any = None) -> FakeStream:
        return getattr(self._of_thread, "stream", self._default)

    def set_stream(self, stream: FakeStream) -> None:
        self._of_thread.stream = stream

    def is_current_stream_capturing(self) -> bool:
        return self.captures

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        before = self.current_stream()
        self.set_stream(stream)
        try:
            yield
        finally:
            self.set_stream(before)


class CudaTensor(torch.Tensor):
    """A CPU tensor that claims to be on a CUDA device, and records the stream on which it was written."""

    device = torch.device("cuda", 0)
    cuda: FakeCuda
    written_on: FakeStream | None = None

    def record_stream(self, stream: Any) -> None:
        """Does nothing: it concerns only the caching allocator."""

    def detach(self) -> CudaTensor:
        return self

    def copy_(self, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        self.written_on = self.cuda.current_stream()
        return super().copy_(source)


class Client:
    """An engine that adds one to its input when it is asked for a completion."""

    def __init__(self) -> None:
        self._tickets: list[int] = []
        self._started = threading.Semaphore(0)

    def start(self, buffer: torch.Tensor) -> int:
        buffer += 1
        self._tickets.append(7)
        self._started.release()
        return 7

    def next_completion(self, timeout_s: float) -> tuple[int, None] | None:
        return (self._tickets.pop(), None) if self._started.acquire(timeout=timeout_s) else None

    def close(self, reason: str = "") -> None:
        """Does nothing: there is no job to leave."""

    def stats(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    for name in ("Stream", "current_stream", "set_stream", "stream", "is_current_stream_capturing"):
        monkeypatch.setattr(torch.cuda, name, getattr(fake, name))
    monkeypatch.setattr(staging, "pinned", lambda count, dtype: torch.empty(count, dtype=dtype))
    monkeypatch.setattr(CudaTensor, "cuda", fake, raising=False)
    return fake


@pytest.mark.parametrize("kind", [CallerDriven, lambda client: CompletionThread(client, "test")])
def test_the_users_stream_stays_current_and_the_future_completes_on_the_copy_stream(kind: Any, cuda: FakeCuda) -> None:
    folds: Folds = kind(Client())
    mine = FakeStream()
    cuda.set_stream(mine)
    tensor = torch.zeros(5).as_subclass(CudaTensor)
    staged = staging.Staging().stage([tensor])
    assert cuda.current_stream() is mine
    call = Call((staged.buffer,), lambda client, awaited: client.start(staged.buffer), staged.finish, staged.completing)
    fold = Fold(call, folds.new_work([]))
    completed_on: list[FakeStream] = []
    fold.work._future.then(lambda future: completed_on.append(cuda.current_stream()))
    folds.submit(fold)
    assert fold.work.wait()
    assert cuda.current_stream() is mine, "the caller was left on another stream"
    assert torch.equal(torch.Tensor(tensor), torch.ones(5))
    assert tensor.written_on is not mine
    assert completed_on == [tensor.written_on], "the future's event would not be behind the copies"
    folds.close()


def test_a_device_that_fails_in_the_copy_up_fails_the_work_and_leaves_the_stream(cuda: FakeCuda) -> None:
    folds = CallerDriven(Client())
    mine = cuda.current_stream()
    staged = staging.Staging().stage([torch.zeros(5).as_subclass(CudaTensor)])

    def fail() -> list[torch.Tensor]:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    call = Call((staged.buffer,), lambda client, awaited: client.start(staged.buffer), fail, staged.completing)
    fold = Fold(call, folds.new_work([]))
    folds.submit(fold)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        fold.work.wait()
    assert cuda.current_stream() is mine
    folds.close()


def test_a_graph_that_is_recorded_is_refused(cuda: FakeCuda) -> None:
    tensor = torch.zeros(5).as_subclass(CudaTensor)
    cuda.captures = True
    for stage in (staging.Staging().stage, staging.Staging().write):
        with pytest.raises(RuntimeError, match="a CUDA graph cannot contain a collective of Netfold"):
            stage([tensor])
    cuda.captures = False
    assert staging.Staging().stage([tensor]).buffer.numel() == 5


def test_parameters_that_record_their_use_are_read_and_written() -> None:
    parameter = torch.nn.Parameter(torch.ones(4, 3).t())
    staged = staging.Staging().stage([parameter])
    assert not staged.buffer.requires_grad
    staged.buffer += 1
    staged.finish()
    assert torch.equal(parameter, torch.full((3, 4), 2.0))
