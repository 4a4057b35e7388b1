"""A RoCE worker of a measurement, or its switch. It answers each line of JSON on standard input by a line of JSON.

`python -m netfold_lab.bench.workers.roce ROLE OPTIONS`, OPTIONS a JSON object. It ends when standard input does. Roles:
- worker: prints its queue pairs' information, reads that of all workers, then runs a collective for each line;
- switch: prints a line when it folds, then its counters for each line;
- trainer: like a worker, but trains for each line, and prints the results.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from typing import Any

import numpy as np

from netfold import _core, native

DTYPES = {"fp32": np.float32, "int32": np.int32}


def elements(seed: int, rank: int, count: int, dtype: str) -> np.ndarray:
    """A rank's gradients, the same in every process."""
    random = np.random.default_rng([seed, rank])
    if dtype == "int32":
        return random.integers(-(2**31), 2**31, count, np.int32)
    return random.standard_normal(count, np.float32)


def say(value: Any) -> None:
    """Print one line of JSON."""
    print(json.dumps(value), flush=True)


def start(client: Any, collective: str, values: np.ndarray, results: np.ndarray, dtype: str, wire: str) -> int:
    """Submit a collective from `values` to `results`; returns its ticket. A broadcast is of rank 0's."""
    source, target = values.ctypes.data, results.ctypes.data
    if collective == "all-reduce":
        return client.all_reduce(source, target, len(values), dtype, wire)
    if collective == "reduce-scatter":
        return client.reduce_scatter(source, target, len(results), dtype, wire)
    return client.collect(collective, source, target, len(values), dtype)


def memory_of(options: dict[str, Any], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """A rank's elements, and the memory of its results."""
    collective, whole = options.get("collective", "all-reduce"), options["count"]
    part = whole // options["world"]
    values = elements(options["seed"], options["rank"], part if collective == "all-gather" else whole, dtype)
    return values, np.zeros(part if collective == "reduce-scatter" else whole, DTYPES[dtype])


def serve_worker(options: dict[str, Any]) -> None:
    """Run a collective for each line."""
    dtype = "int32" if options["format"] == "int32" else "fp32"
    values, results = memory_of(options, dtype)
    client = _core.RoceGroup(options["interface"], options["rank"], options["world"], **options["client"])
    say(client.address)
    client.connect(json.loads(sys.stdin.readline()))
    say("connected")
    for _ in sys.stdin:
        results.fill(0)
        begun = time.monotonic()
        client.wait(start(client, options.get("collective", "all-reduce"), values, results, dtype, options["format"]))
        say(
            {
                "time_s": time.monotonic() - begun,
                "crc32": zlib.crc32(results.view(np.uint8).data),
                "counters": client.stats(),
            }
        )
    client.close()


def serve_switch(options: dict[str, Any]) -> None:
    """Fold until standard input ends: in software or, with engine "rtl", in simulated hardware."""
    interfaces = options["interfaces"]
    folds = native.simulated_switch(len(interfaces)) if options.get("engine") == "rtl" else _core
    switch = folds.FrameSwitch(interfaces, ports=options.get("ports", []), is_float=True)
    if "uplink" in options:
        switch.configure(options["ports"], uplink=options["uplink"])
    say("folding")
    for _ in sys.stdin:
        say(switch.counts())
    switch.close()


def serve_trainer(options: dict[str, Any]) -> None:
    """Train for each line."""
    from netfold_lab.bench.workers.roce_training import train

    client = _core.RoceGroup(options["interface"], options["rank"], options["world"], **options["client"])
    say(client.address)
    client.connect(json.loads(sys.stdin.readline()))
    say("connected")
    for _ in sys.stdin:
        say({**train(client, options), "counters": client.stats()})
    client.close()


if __name__ == "__main__":
    serve = {"worker": serve_worker, "switch": serve_switch, "trainer": serve_trainer}[sys.argv[1]]
    serve(json.loads(sys.argv[2]))
