"""Runs the program behind `netfold switch` and workers at it, for tests."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from netfold import _core, native

WAIT_S = 20.0
NETFOLD = [sys.executable, "-c", "from netfold.cli import main; main()"]


class Running:
    """A switch program that listens."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Path) -> None:
        self.process = process
        self.errors = errors
        said = b""
        while not re.search(rb"^listening on .*\n", said, re.MULTILINE):
            assert select.select([process.stdout], [], [], WAIT_S)[0], f"said only {said} in time; {errors.read_text()}"
            more = os.read(process.stdout.fileno(), 4096)
            assert more, f"ended before it listened: {errors.read_text()}"
            said += more
        self.metrics = re.search(r"^metrics on http://(\S+)/metrics$", said.decode(), re.MULTILINE)[1]
        self.address = re.search(r"^listening on (\S+)$", said.decode(), re.MULTILINE)[1]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.metrics, timeout=WAIT_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def stats(self) -> dict:
        return json.loads(self.get("/stats.json")[1])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(WAIT_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts `netfold switch` with these arguments, on the loopback and ports of the kernel's choice."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: str) -> Running:
        errors = tmp_path / f"switch{len(started)}.log"
        command = [*NETFOLD, "switch", "--bind", "127.0.0.1", "--port", "0", "--metrics", "127.0.0.1:0", *arguments]
        with errors.open("w") as log:
            started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log))
        return Running(started[-1], errors)

    yield begin
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*NETFOLD, *arguments], capture_output=True, text=True, timeout=60, check=False)


def listening(
    bind: str, port: int, within: Sequence[str] = (), errors: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """The switch's program by itself, once it listens. `within`: the words before its command."""
    program = native.find(native.SWITCH)
    assert program is not None, "run `make build`"
    command = [*within, str(program), "--bind", bind, "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
    assert process.stdout is not None and process.stdout.readline().startswith(b"listening on")
    return process


@contextmanager
def workers(switch: str, world: int, job: str = "test", **options: object) -> Iterator[list[_core.SwitchGroup]]:
    clients: list[_core.SwitchGroup | Exception | None] = [None] * world

    def join(rank: int) -> None:
        try:
            clients[rank] = _core.SwitchGroup(switch, job, world, rank, timeout_s=10.0, **options)
        except Exception as error:
            clients[rank] = error

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    try:
        for client in clients:
            if isinstance(client, Exception):
                raise client
        yield clients
    finally:
        for client in clients:
            if isinstance(client, _core.SwitchGroup):
                client.close()


def fold(clients: list[_core.SwitchGroup], count: int = 1000) -> list[np.ndarray]:
    inputs = [np.full(count, rank + 1, dtype=np.float32) for rank in range(len(clients))]
    outputs = [np.zeros(count, dtype=np.float32) for _ in clients]
    tickets = [
        client.all_reduce(one.ctypes.data, other.ctypes.data, count, "fp32", "fp32")
        for client, one, other in zip(clients, inputs, outputs, strict=True)
    ]
    for client, ticket in zip(clients, tickets, strict=True):
        client.wait(ticket)
    return outputs
