"""The ranks of `netfold bench deaths`: `python -m netfold_lab.bench.workers.deaths SETUP`.

SETUP is a JSON object: system (netfold or gloo), ranks, deaths, every_s, count (fp32 elements), seed, timeout_s.

All ranks are processes of this machine. They all-reduce without end, until one of them is killed; the others re-form
and go on. Prints a JSON object a line: one for each death, then one for the end.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

from netfold.errors import NetfoldError

CONTEXT = multiprocessing.get_context("forkserver")
LOOPBACK = "127.0.0.1"
RUN_S = (0.3, 0.6)  # between two deaths, at least


class Member:
    """A rank that goes on without the others that die. `stop` ends it, `killed` holds the rank that was killed last."""

    def __init__(self, number: int, setup: dict[str, Any], port: int, stop: Any, killed: Any) -> None:
        import torch
        import torch.distributed as dist
        from torch._C._distributed_c10d import TCPStore

        torch.set_num_threads(1)
        self._dist, self._torch, self._setup, self._number = dist, torch, setup, number
        self._stop, self._killed = stop, killed
        self._timeout = timedelta(seconds=setup["timeout_s"])
        self._members = list(range(setup["ranks"]))
        self._store = TCPStore(LOOPBACK, port, setup["ranks"], is_master=False, timeout=self._timeout)
        self._form()

    def _form(self) -> None:
        from torch._C._distributed_c10d import PrefixStore

        self._dist.init_process_group(
            self._setup["system"],
            store=PrefixStore(str(len(self._members)), self._store),
            rank=self._members.index(self._number),
            world_size=len(self._members),
            timeout=self._timeout,
        )

    def _re_form(self, dead: int) -> None:
        from torch.distributed.distributed_c10d import SHRINK_ABORT

        self._members.pop(dead)
        if self._setup["system"] == "netfold":
            self._dist.shrink_group([dead], shrink_flags=SHRINK_ABORT)
        else:
            self._dist.destroy_process_group()
            self._form()

    def _all_reduce(self, tensor: Any) -> int | None:
        """The rank that has died, if one has. Netfold's error names it; a user of Gloo must learn it in another way.

        The error must not live on: its frames hold the process group, and with it the connections of Gloo."""
        try:
            self._dist.all_reduce(tensor)
        except RuntimeError as error:
            if self._setup["system"] == "gloo":
                return self._members.index(self._killed.value)
            if not isinstance(error, NetfoldError) or error.rank < 0:
                raise
            return error.rank
        return None

    def run(self, pipe: Connection) -> None:
        """All-reduce until told to stop. Says after each death when it heard of it, when the group was whole again, how
        many steps it had to do again, and whether the tensor was torn."""
        torch, dist = self._torch, self._dist
        tensor = torch.empty(self._setup["count"])
        steps, parent = 0, os.getppid()
        while os.getppid() == parent:  # else the process that listens has ended
            tensor.fill_(1.0)
            tensor[0] = float(self._stop.value)
            dead = self._all_reduce(tensor)
            if dead is not None:
                heard = time.monotonic()
                is_torn = bool((tensor[1:] != tensor[1]).any())
                self._re_form(dead)
                agreed = torch.tensor([float(steps)], dtype=torch.float64)
                dist.all_reduce(agreed, op=dist.ReduceOp.MIN)
                lost = 1 + steps - int(agreed)
                steps = int(agreed)
                pipe.send({"heard": heard, "again": time.monotonic(), "lost": lost, "is_torn": is_torn})
                continue
            if bool((tensor[1:] != len(self._members)).any()):
                raise ArithmeticError(f"rank {self._number} got a wrong sum in a group of {len(self._members)}")
            steps += 1
            if tensor[0] > 0:
                break
        pipe.send({"steps": steps})
        dist.barrier()
        dist.destroy_process_group()


def _run_member(number: int, setup: dict[str, Any], port: int, shared: tuple[Any, Any], pipe: Connection) -> None:
    if setup["system"] == "netfold":
        import netfold.torch  # noqa: F401  (registers the backend)
    member = Member(number, setup, port, *shared)
    pipe.send({"formed": time.monotonic()})
    member.run(pipe)


@dataclass
class Process:
    """A rank's process, and what it says."""

    process: Any
    pipe: Connection


def _hear(processes: dict[int, Process], timeout_s: float) -> list[dict[str, Any]]:
    """A message of each."""
    deadline = time.monotonic() + timeout_s
    waiting = {each.pipe: number for number, each in processes.items()}
    said = []
    while waiting:
        ready = wait(list(waiting), max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError(f"ranks {sorted(waiting.values())} said nothing within {timeout_s:g} s")
        for pipe in ready:
            assert isinstance(pipe, Connection)
            number = waiting.pop(pipe)
            try:
                said.append(pipe.recv())
            except EOFError:
                raise RuntimeError(f"rank {number} ended: see above") from None
    return said


def _deaths(setup: dict[str, Any], processes: dict[int, Process], killed: Any) -> None:
    moment = random.Random(setup["seed"])
    for _ in range(setup["deaths"]):
        time.sleep(max(setup["every_s"], moment.uniform(*RUN_S)))
        number = moment.choice(sorted(processes))
        doomed = processes.pop(number)
        killed.value = number
        died = time.monotonic()
        os.kill(doomed.process.pid, signal.SIGKILL)
        said = _hear(processes, setup["timeout_s"])
        print(
            json.dumps(
                {
                    "heard_s": max(each["heard"] for each in said) - died,
                    "again_s": max(each["again"] for each in said) - died,
                    "lost": max(each["lost"] for each in said),
                    "torn": sum(each["is_torn"] for each in said),
                }
            ),
            flush=True,
        )


def main() -> None:
    """Start the ranks, kill some, and print what the others say."""
    from torch._C._distributed_c10d import TCPStore

    setup = json.loads(sys.argv[1])
    CONTEXT.set_forkserver_preload(["torch", "torch.distributed", "netfold.torch"])
    store = TCPStore(LOOPBACK, 0, setup["ranks"], is_master=True, wait_for_workers=False)
    shared = (CONTEXT.Value("i", 0), CONTEXT.Value("i", -1))
    processes: dict[int, Process] = {}
    every = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no rank outlives this process
    try:
        for number in range(setup["ranks"]):
            here, there = CONTEXT.Pipe(duplex=False)
            process = CONTEXT.Process(target=_run_member, args=(number, setup, store.port, shared, there), daemon=True)
            process.start()
            there.close()
            processes[number] = Process(process, here)
            every.append(process)
        _hear(processes, setup["timeout_s"])
        _deaths(setup, processes, shared[1])
        shared[0].value = 1
        said = _hear(processes, setup["timeout_s"])
        for each in processes.values():
            each.process.join(setup["timeout_s"])
        print(json.dumps({"steps": min(each["steps"] for each in said)}), flush=True)
    finally:
        for process in every:
            process.kill()


if __name__ == "__main__":
    main()
