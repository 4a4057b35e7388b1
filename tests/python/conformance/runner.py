"""Runs single tests of PyTorch's own distributed test-suite against the netfold backend.

Reads test names from standard input, one a line, and answers each with one JSON line: name, outcome ("passed",
"failed", "skipped"), detail, seconds. It is a process of its own because the suite reads its set-up from environment
variables when it is imported. Its argument is the number of workers, 4 by default. Workers are forked from this
process, in which torch is loaded already: a test takes about a second where spawned workers take five.

The suite decides by the backend's name which tests make sense. Netfold supports all that Gloo supports. So the suite is
told "gloo", and its workers' default group, and all groups made from it, are "netfold". Otherwise the suite would skip
tests, because torch's lists do not have the name. Tests that it keeps for "mpi", although Netfold supports them, run as
well.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import unittest
from datetime import timedelta
from typing import Any
from unittest import mock

WORLD_SIZE = int(sys.argv[1]) if len(sys.argv) > 1 else 4
TIMEOUT_S = 60
FOR_THE_NAME = ("Only MPI supports CPU all_to_all_single", "Only MPI supports all_to_all")

_folder = tempfile.TemporaryDirectory(prefix="netfold-conformance-")  # removed when this process ends
os.environ.setdefault("NETFOLD_ALGORITHM", "in-network")
os.environ.update(
    BACKEND="gloo",
    WORLD_SIZE=str(WORLD_SIZE),
    TEMP_DIR=_folder.name,
    DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(TIMEOUT_S),
    OMP_NUM_THREADS="1",
)

import torch  # noqa: E402
import torch._dynamo  # noqa: E402  (DDP would load it in every worker: seconds)
import torch.distributed as dist  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402

import netfold.torch  # noqa: E402, F401

DistributedTest = distributed_test.DistributedTest


class NetfoldConformance(distributed_test.TestDistBackend, DistributedTest._DistTestBase):
    """Every test of the suite, on `WORLD_SIZE` forked workers."""

    def setUp(self) -> None:
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    def test_get_backend(self) -> None:
        """The one test that compares names needs the right one."""
        with mock.patch.object(distributed_test, "BACKEND", "netfold"):
            super().test_get_backend()

    @classmethod
    def _run(cls, rank: int, test_name: str, file_name: str, pipe: Any, **_: Any) -> None:
        """One worker: as in TestDistBackend, with the netfold backend."""
        self = cls(test_name)
        self.rank = rank
        self.file_name = file_name
        timeout_s = distributed_test.CUSTOM_PG_TIMEOUT.get(test_name, distributed_test.default_pg_timeout)
        dist.init_process_group(
            "netfold",
            init_method=self.init_method,
            world_size=WORLD_SIZE,
            rank=rank,
            timeout=timedelta(seconds=timeout_s),
        )
        self._barrier()
        self.run_test(test_name, pipe)
        self._barrier()
        dist.destroy_process_group()
        sys.exit(0)


def unskip(reasons: tuple[str, ...]) -> None:
    """Run tests that the suite skips for one of these reasons."""
    for name in names():
        test = getattr(DistributedTest._DistTestBase, name)
        if getattr(test, "__unittest_skip_why__", "") in reasons:
            test.__unittest_skip__ = False


def names() -> list[str]:
    """All tests of the suite, sorted."""
    return sorted(name for name in dir(DistributedTest._DistTestBase) if name.startswith("test_"))


def run(name: str) -> dict[str, object]:
    """Run one test to its end (at most TIMEOUT_S); returns its result."""
    result = unittest.TestResult()
    start = time.monotonic()
    NetfoldConformance(name).run(result)
    seconds = round(time.monotonic() - start, 2)
    problems = [text for _, text in result.failures + result.errors]
    if problems:
        return {"name": name, "outcome": "failed", "detail": problems[0], "seconds": seconds}
    if result.skipped:
        return {"name": name, "outcome": "skipped", "detail": result.skipped[0][1], "seconds": seconds}
    return {"name": name, "outcome": "passed", "detail": "", "seconds": seconds}


def main() -> None:
    """Answer on the real standard output; the output of torch and of the tests goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    unskip(FOR_THE_NAME)
    for line in sys.stdin:
        name = line.strip()
        answer = {"names": names()} if name == "?" else run(name)
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
