"""The ranks of `netfold bench deaths`: `python -m netfold_lab.bench.workers.deaths SETUP`.

SETUP is a JSON object: system (netfold or gloo), by (shrink, reconfigure or new-group), replace (whether another rank
comes for each that is killed), ranks, deaths, every_s, count (fp32 elements), seed, timeout_s.

All ranks are processes of this machine. They all-reduce without end, until one of them is killed; the others re-form
and go on. Prints a JSON object a line: one for each death and each rank that comes, then one for the end.
"""

from __future__ import annotations

import json
import math
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


@dataclass(frozen=True)
class Shared:
    """The words of the process that starts the ranks: `stop` ends them. `killed` is the number of the rank that was
    killed last, and `coming` that of a rank that wants to join; or -1."""

    stop: Any
    killed: Any
    coming: Any


class Member:
    """A rank that goes on without the others that die, and with those that come."""

    def __init__(self, number: int, setup: dict[str, Any], port: int, shared: Shared) -> None:
        import torch
        import torch.distributed as dist
        from torch._C._distributed_c10d import TCPStore

        torch.set_num_threads(1)
        self._dist: Any = dist
        self._torch, self._setup, self._number = torch, setup, number
        self._shared = shared
        self._timeout = timedelta(seconds=setup["timeout_s"])
        self._store = TCPStore(LOOPBACK, port, is_master=False, timeout=self._timeout)
        self._generation, self._members = 0, list(range(setup["ranks"]))
        self.is_new = number not in self._members
        if self.is_new:
            self._wait_for_others()
        self._form()

    def _wait_for_others(self) -> None:
        """Until a member has said which group this one joins."""
        if self._setup["by"] == "reconfigure":
            self._open()
        self._store.set(f"coming/{self._number}", "here")
        self._shared.coming.value = self._number
        self._generation, self._members = json.loads(self._store.get(f"joins/{self._number}"))

    def _open(self) -> None:
        """Make the process group, by reconfigure one that is formed later."""
        from torch._C._distributed_c10d import PrefixStore

        by_reconfigure = self._setup["by"] == "reconfigure"
        options: Any = {"enable_reconfigure": True} if by_reconfigure else {}  # older torch does not know it
        self._dist.init_process_group(
            self._setup["system"],
            store=PrefixStore("groups" if by_reconfigure else f"group/{self._generation}", self._store),
            rank=self._members.index(self._number) if self._number in self._members else 0,
            world_size=len(self._members),
            timeout=self._timeout,
            **options,
        )

    def _form(self) -> None:
        """Form a group of all members, and forget the one before."""
        if self._setup["by"] == "reconfigure":
            if not self._dist.is_initialized():
                self._open()
            self._reconfigure()
            return
        if self._dist.is_initialized():
            self._dist.destroy_process_group()
        self._open()

    def _reconfigure(self) -> None:
        """Tell the others this rank's handle, and form the group with theirs."""
        prefix = f"handle/{self._generation}"
        self._store.set(f"{prefix}/{self._number}", self._dist._get_reconfigure_handle())
        keys = [f"{prefix}/{each}" for each in self._members]
        self._store.wait(keys, self._timeout)
        handles = [each.decode() for each in self._store.multi_get(keys)]
        self._dist._reconfigure(self._generation, handles, timeout=self._timeout).wait()

    def _go_on_without(self, dead: int) -> None:
        from torch.distributed.distributed_c10d import SHRINK_ABORT

        self._members.pop(dead)
        self._generation += 1
        if self._setup["by"] == "shrink":
            self._dist.shrink_group([dead], shrink_flags=SHRINK_ABORT)
        else:
            self._form()

    def _go_on_with(self, number: int) -> None:
        self._members.append(number)
        self._generation += 1
        self._store.set(f"joins/{number}", json.dumps([self._generation, self._members]))
        self._form()

    def _all_reduce(self, tensor: Any) -> int | None:
        """The rank that has died, if one has. Netfold's error names it; a user of Gloo must learn it in another way.

        The error must not live on: its frames hold the process group, and with it the connections of Gloo."""
        try:
            self._dist.all_reduce(tensor)
        except RuntimeError as error:
            if self._setup["system"] == "gloo":
                return self._members.index(self._shared.killed.value)
            if not isinstance(error, NetfoldError) or error.rank < 0:
                raise
            return error.rank
        return None

    def run(self, pipe: Connection) -> None:
        """All-reduce until told to stop. Says after each death when it heard of it, when the group was whole again, how
        many steps it had to do again, and whether the tensor was torn; after each rank that has come, when the group
        was whole."""
        torch, dist = self._torch, self._dist
        tensor = torch.empty(self._setup["count"])
        steps, parent = 0, os.getppid()
        if self.is_new:
            steps = self._agree_on(math.inf)
            pipe.send({"again": time.monotonic()})
        while os.getppid() == parent:  # else the process that listens has ended
            tensor.fill_(1.0)
            tensor[0] = float(self._shared.stop.value)
            tensor[1] = float(self._shared.coming.value not in (-1, *self._members))
            dead = self._all_reduce(tensor)
            if dead is not None:
                heard = time.monotonic()
                is_torn = bool((tensor[2:] != tensor[2]).any())
                self._go_on_without(dead)
                lost, steps = 1 + steps, self._agree_on(steps)
                pipe.send({"heard": heard, "again": time.monotonic(), "lost": lost - steps, "is_torn": is_torn})
                continue
            if bool((tensor[2:] != len(self._members)).any()):
                raise ArithmeticError(f"rank {self._number} got a wrong sum in a group of {len(self._members)}")
            steps += 1
            if tensor[1] > 0:
                self._go_on_with(self._shared.coming.value)
                steps = self._agree_on(steps)
                pipe.send({"again": time.monotonic()})
            if tensor[0] > 0:
                break
        pipe.send({"steps": steps})
        dist.barrier()
        dist.destroy_process_group()

    def _agree_on(self, steps: float) -> int:
        """The least number of steps of any member. It is the first sum of a group."""
        agreed = self._torch.tensor([float(steps)], dtype=self._torch.float64)
        self._dist.all_reduce(agreed, op=self._dist.ReduceOp.MIN)
        return int(agreed)


def _run_member(number: int, setup: dict[str, Any], port: int, shared: Shared, pipe: Connection) -> None:
    if setup["system"] == "netfold":
        import netfold.torch  # noqa: F401  (registers the backend)
    member = Member(number, setup, port, shared)
    if not member.is_new:
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


class Crowd:
    """All ranks that live."""

    def __init__(self, setup: dict[str, Any], port: int) -> None:
        self._setup, self._port = setup, port
        self._shared = Shared(CONTEXT.Value("i", 0), CONTEXT.Value("i", -1), CONTEXT.Value("i", -1))
        self._moment = random.Random(setup["seed"])
        self._processes: dict[int, Process] = {}
        self._every: list[Any] = []

    def start(self) -> int:
        """Start one more; returns its number."""
        number = len(self._every)
        here, there = CONTEXT.Pipe(duplex=False)
        arguments = (number, self._setup, self._port, self._shared, there)
        process = CONTEXT.Process(target=_run_member, args=arguments, daemon=True)
        process.start()
        there.close()
        self._processes[number] = Process(process, here)
        self._every.append(process)
        return number

    def hear(self) -> list[dict[str, Any]]:
        """A message of each."""
        return _hear(self._processes, self._setup["timeout_s"])

    def wait(self) -> None:
        """Let them work for a while."""
        time.sleep(max(self._setup["every_s"], self._moment.uniform(*RUN_S)))

    def kill(self) -> dict[str, Any]:
        """Kill one; returns how the others went on."""
        number = self._moment.choice(sorted(self._processes))
        doomed = self._processes.pop(number)
        self._shared.killed.value = number
        died = time.monotonic()
        os.kill(doomed.process.pid, signal.SIGKILL)
        said = self.hear()
        return {
            "heard_s": max(each["heard"] for each in said) - died,
            "again_s": max(each["again"] for each in said) - died,
            "lost": max(each["lost"] for each in said),
            "torn": sum(each["is_torn"] for each in said),
        }

    def replace(self, store: Any) -> dict[str, Any]:
        """Start one more, which joins; returns how long it took from the moment that it was ready."""
        number = self.start()
        store.wait([f"coming/{number}"], timedelta(seconds=self._setup["timeout_s"]))
        came = time.monotonic()
        said = self.hear()
        self._shared.coming.value = -1
        return {"joined_s": max(each["again"] for each in said) - came}

    def stop(self) -> dict[str, Any]:
        """Let all end; returns how many steps there were."""
        self._shared.stop.value = 1
        said = self.hear()
        for each in self._processes.values():
            each.process.join(self._setup["timeout_s"])
        return {"steps": min(each["steps"] for each in said)}

    def end(self) -> None:
        """Leave no process behind."""
        for process in self._every:
            process.kill()


def main() -> None:
    """Start the ranks, kill some, and print what the others say."""
    from torch._C._distributed_c10d import TCPStore

    setup = json.loads(sys.argv[1])
    CONTEXT.set_forkserver_preload(["torch", "torch.distributed", "netfold.torch"])
    store = TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False)
    crowd = Crowd(setup, store.port)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no rank outlives this process
    try:
        for _ in range(setup["ranks"]):
            crowd.start()
        crowd.hear()
        for _ in range(setup["deaths"]):
            crowd.wait()
            print(json.dumps(crowd.kill()), flush=True)
            if setup["replace"]:
                print(json.dumps(crowd.replace(store)), flush=True)
        print(json.dumps(crowd.stop()), flush=True)
    finally:
        crowd.end()


if __name__ == "__main__":
    main()
