"""A rank of `netfold bench case1`.

`python -m netfold_lab.bench.workers.case1 ROLE CONTROL RANK OPTIONS`, OPTIONS in JSON.

Ranks 0 to world - 1 are workers, rank `world` is the host. There are two ways to sum:

`folded`, `folded-host`: gradients are addressed to the host, the switch folds them on their way, and tells the host
when they are folded (PROTOCOL.md, "Jobs with a host"). `summed`, `summing-host`: the host receives every worker's
gradients over TCP, sums them and sends the sum back. It works piece by piece: while it sums one piece, the next arrive
and the last leave. It has a thread for each worker and direction.
"""

from __future__ import annotations

import json
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from netfold import _core
from netfold_lab.bench.workers.rank import DTYPES, Bench, answer, in_json, sleep_until

PIECE_ELEMENTS = 1 << 15
CONNECT_PAUSE_S = 0.05
SO_MAX_PACING_RATE = 47  # socket(7); Python has no name for it
NOT_SUMMED = "0.0 host"  # a host's answer in place of an error and a digest


@dataclass(frozen=True)
class Options:
    """The options of every rank."""

    world: int
    timeout_s: float
    switch: str  # with folding: the switch's address
    host: str  # with summing: the host's address
    port: int
    pace_bytes_s: int  # a worker's largest rate to the host, so that all workers together fill its link; 0: no limit


def pieces(count: int) -> Iterator[slice]:
    """The elements of a tensor in the type that is sent and summed."""
    return (slice(begin, min(begin + PIECE_ELEMENTS, count)) for begin in range(0, count, PIECE_ELEMENTS))


def receive(connection: socket.socket, into: np.ndarray) -> None:
    """Receive until the array is full."""
    view = into.data.cast("B")
    while view:
        got = connection.recv_into(view)
        if got == 0:
            raise ConnectionError("the peer closed the connection")
        view = view[got:]


class Threads:
    """Threads that run in parallel. join() raises the error of a thread."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._errors: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def start(self, work: Any, *arguments: Any) -> None:
        """Start one more thread."""

        def run() -> None:
            try:
                work(*arguments)
            except BaseException as error:
                self._errors.put(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._threads.append(thread)

    def join(self, timeout_s: float) -> None:
        """Wait for all threads, within a time limit."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            while thread.is_alive():
                if not self._errors.empty():
                    raise self._errors.get()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the sum took longer than {timeout_s:g} s")
                thread.join(0.1)
        if not self._errors.empty():
            raise self._errors.get()


class SummedWorker:
    """A worker that sends its gradients to the host and receives the sum."""

    def __init__(self, rank: int, options: Options) -> None:
        self._timeout_s = options.timeout_s
        deadline = time.monotonic() + options.timeout_s
        while True:
            try:
                self._connection = socket.create_connection((options.host, options.port), options.timeout_s)
                break
            except ConnectionRefusedError:  # the host may start later than this worker
                if time.monotonic() > deadline:
                    raise
                time.sleep(CONNECT_PAUSE_S)
        if options.pace_bytes_s:
            self._connection.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, options.pace_bytes_s)
        self._connection.sendall(rank.to_bytes(2, "big"))

    def all_reduce(self, values: np.ndarray, result: np.ndarray, wire: str, algorithm: str) -> None:
        """Send and receive at the same time."""
        threads = Threads()
        threads.start(self._connection.sendall, values.data.cast("B"))
        receive(self._connection, result)
        threads.join(self._timeout_s)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()


class FoldedHost:
    """A host that the switch tells when a tensor is folded."""

    def __init__(self, options: Options) -> None:
        self._host = _core.AggregationObserver(options.switch, "case1", options.world, timeout_s=options.timeout_s)

    def sum(self, count: int, dtype: str) -> None:
        """Wait for the switch's message."""
        self._host.wait(self._host.expect(count, "int32" if dtype == "int32" else "fp32"))

    def close(self) -> None:
        """Leave the job."""
        self._host.close()


class SummingHost:
    """A host that sums all workers' gradients, in the switch's order."""

    def __init__(self, options: Options) -> None:
        self._timeout_s = options.timeout_s
        self._workers: dict[int, socket.socket] = {}
        with socket.create_server((options.host, options.port), backlog=options.world) as listener:
            listener.settimeout(options.timeout_s)
            while len(self._workers) < options.world:
                connection, _ = listener.accept()
                connection.settimeout(options.timeout_s)
                rank = np.zeros(2, np.uint8)
                receive(connection, rank)
                self._workers[int.from_bytes(rank.tobytes(), "big")] = connection

    def sum(self, count: int, dtype: str) -> None:
        """Runs a thread for each worker and direction; this thread sums."""
        ranks = range(len(self._workers))
        gradients = [np.empty(count, DTYPES[dtype]) for _ in ranks]
        came: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in ranks]
        sums: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in ranks]
        threads = Threads()
        for rank in ranks:
            threads.start(self._receive, rank, gradients[rank], came[rank])
            threads.start(self._send, rank, sums[rank], count)
        for piece in pieces(count):
            for each in came:
                each.get(timeout=self._timeout_s)
            total = _core.fold([values[piece] for values in gradients], "int32" if dtype == "int32" else "fp32")
            for each in sums:
                each.put(total)
        threads.join(self._timeout_s)

    def _receive(self, rank: int, into: np.ndarray, came: queue.SimpleQueue) -> None:
        for piece in pieces(into.size):
            receive(self._workers[rank], into[piece])
            came.put(piece)

    def _send(self, rank: int, sums: queue.SimpleQueue, count: int) -> None:
        for _ in pieces(count):
            self._workers[rank].sendall(memoryview(sums.get(timeout=self._timeout_s)).cast("B"))

    def close(self) -> None:
        """Close the connections."""
        for connection in self._workers.values():
            connection.close()


@contextmanager
def folded_worker(rank: int, options: Options) -> Iterator[Any]:
    """An all-reduce through the switch."""
    client = _core.SwitchGroup(options.switch, "case1", options.world, rank, timeout_s=options.timeout_s, hosted=True)

    def all_reduce(values: np.ndarray, result: np.ndarray, wire: str, algorithm: str) -> None:
        dtype = "int32" if values.dtype == np.int32 else "fp32"
        client.wait(client.all_reduce(values.ctypes.data, result.ctypes.data, values.size, dtype, wire))

    try:
        yield all_reduce
    finally:
        client.close()


def serve_worker(control: str, rank: int, all_reduce: Any) -> None:
    """Answer the coordinator's commands."""
    answer(control, rank, Bench(all_reduce).replies() | in_json({"cpu": time.process_time}))


def serve_host(control: str, rank: int, host: FoldedHost | SummingHost) -> None:
    """Answer the coordinator's commands; `run` ends when the host knows that the sum is complete."""
    tensor: list[Any] = []

    def prepare(count: str, dtype: str, *_: str) -> str:
        tensor[:] = [int(count), dtype]
        return "ready"

    def run(start_ns: str, algorithm: str, iterations: str) -> str:
        sleep_until(int(start_ns))
        begun_ns = time.monotonic_ns()
        for _ in range(int(iterations)):
            host.sum(*tensor)
        return f"done {(time.monotonic_ns() - begun_ns) // int(iterations)}"

    replies: dict[str, Callable[..., str]] = {"prepare": prepare, "run": run, "check": lambda: f"done {NOT_SUMMED}"}
    answer(control, rank, replies | in_json({"cpu": time.process_time}))


def main() -> None:
    """Connect to the other ranks, then answer commands."""
    role, control, rank_text = sys.argv[1:4]
    rank, options = int(rank_text), Options(**json.loads(sys.argv[4]))
    if role == "folded":
        with folded_worker(rank, options) as all_reduce:
            serve_worker(control, rank, all_reduce)
    elif role == "summed":
        with closing(SummedWorker(rank, options)) as worker:
            serve_worker(control, rank, worker.all_reduce)
    else:
        kinds: dict[str, type[FoldedHost | SummingHost]] = {"folded-host": FoldedHost, "summing-host": SummingHost}
        with closing(kinds[role](options)) as host:
            serve_host(control, rank, host)


if __name__ == "__main__":
    main()
