"""PyTorch's own distributed test-suite, from the wheel, against the netfold backend.

allowlist.txt names the tests that run, left_out.txt the others with the reason. NETFOLD_CONFORMANCE=all tries those
too (`make conformance`), for a machine that has what they miss.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ANSWER_S = 120


def _lines(name: str) -> list[str]:
    return [line for line in (HERE / name).read_text().splitlines() if line and not line.startswith("#")]


ALLOWED = {name: int(workers) for name, workers in (line.split() for line in _lines("allowlist.txt"))}
LEFT_OUT = dict(line.split(": ", 1) for line in _lines("left_out.txt"))
CHOSEN = {**ALLOWED, **dict.fromkeys(LEFT_OUT, 4)} if os.environ.get("NETFOLD_CONFORMANCE") == "all" else ALLOWED


class NoAnswer(AssertionError):
    """The runner did not answer in time. It is ended, so that a late answer cannot count for another test."""


class Runner:
    """A runner.py that answers one test at a time."""

    def __init__(self, workers: int, log: Path) -> None:
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, HERE / "runner.py", str(workers)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def ask(self, line: str) -> dict[str, Any]:
        """Send a line, wait for its answer, bounded by ANSWER_S."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            answer = self._process.stdout.readline() if selector.select(ANSWER_S) else ""
        if not answer:
            said = self.log()
            self.close()
            raise NoAnswer(f"no answer within {ANSWER_S} s; the runner wrote:\n{said}")
        return json.loads(answer)

    @property
    def is_running(self) -> bool:
        """Whether the runner is alive."""
        return self._process.poll() is None

    def log(self) -> str:
        """The end of the output of runner and workers."""
        return self._log.read_text(errors="replace")[-4000:]

    def close(self) -> None:
        """End the runner and its workers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Runner]]:
    running: dict[int, Runner] = {}

    def of(workers: int) -> Runner:
        if workers not in running or not running[workers].is_running:
            running[workers] = Runner(workers, tmp_path_factory.mktemp("conformance") / f"{workers}.log")
        return running[workers]

    yield of
    for started in running.values():
        started.close()


def test_every_test_of_the_suite_is_listed(runner: Callable[[int], Runner]) -> None:
    """A new torch brings new tests: they must be allowed, or left out with a reason."""
    names = set(runner(4).ask("?")["names"])
    assert not set(ALLOWED) & set(LEFT_OUT)
    assert names == set(ALLOWED) | set(LEFT_OUT)


def test_a_runner_that_says_nothing_is_replaced(
    runner: Callable[[int], Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ANSWER_S", 0.01)
    silent = runner(2)
    with pytest.raises(NoAnswer):
        silent.ask("?")
    assert not silent.is_running
    assert runner(2) is not silent


@pytest.mark.parametrize("name", sorted(CHOSEN))
def test_suite(name: str, runner: Callable[[int], Runner]) -> None:
    of_this_size = runner(CHOSEN[name])
    answer = of_this_size.ask(name)
    assert answer["name"] == name
    if answer["outcome"] == "skipped" and name in LEFT_OUT:
        pytest.skip(answer["detail"])
    assert answer["outcome"] == "passed", f"{answer['detail']}\n{of_this_size.log()}"
