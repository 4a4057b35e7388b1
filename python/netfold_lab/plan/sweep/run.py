"""Runs a sweep's designs with Dask: on this machine's cores, or on the cluster of a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from netfold.machine import this_machine
from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster import spec
from netfold_lab.plan.cluster.costs import price_of
from netfold_lab.plan.models.zoo import model_of
from netfold_lab.plan.step.answer import Job, outcomes
from netfold_lab.plan.step.collectives import net_of
from netfold_lab.plan.step.sharded import Training
from netfold_lab.plan.sweep.designs import Design, Sweep, text_of
from netfold_lab.plan.sweep.results import Notebook

IN_FLIGHT = 4  # designs per worker: enough to keep it busy, and few enough that an interruption loses little
CONNECT_S = 15.0


def evaluate(design: Design) -> dict[str, Any]:
    """Plan one design: returns the step of its fastest algorithm. An impossible design returns an error; it does not
    raise."""
    told: dict[str, Any] = {"key": design.key, "varied": design.varied, "job": design.job}
    try:
        cluster = spec.from_text(text_of(design))
        model = model_of(design.job["model"], design.job["layers"], design.job["width"])
        net = net_of(cluster, design.seeds)
        training = Training(design.job["sharding"], design.job["accumulate"], design.job["optimizer"])
        training.check()
        best = outcomes(cluster, net, Job(model, design.job["batch"], training), design.algorithms)[0]
    except UsageError as error:
        return told | {"error": str(error)}
    line = best.timeline
    price = price_of(cluster)
    samples_s = net.world * design.job["batch"] * training.accumulate / line.total_s
    return told | {
        "workers": net.world,
        "algorithm": best.contender.algorithm,
        "format": best.contender.wire,
        "time_s_median": line.total_s,
        "time_s_low": best.low_s,
        "time_s_high": best.high_s,
        "exposed_s": line.exposed_s,
        "reduce_s": line.reduce_s,
        "samples_s": samples_s,
        "price": price,
        "currency": cluster.currency if price else None,
    }


@contextmanager
def client(scheduler: str, workers: int) -> Iterator[Any]:
    """A Dask client: of the scheduler at an address, or of processes on this machine."""
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        raise UsageError("sweeps need Dask: pip install 'netfold[plan]'") from None
    with dask.config.set(
        {"distributed.comm.timeouts.connect": f"{CONNECT_S}s", "distributed.admin.large-graph-warning-threshold": "1GB"}
    ):
        if scheduler:
            try:
                connected = Client(scheduler, timeout=CONNECT_S)
            except (OSError, ValueError) as error:
                raise UsageError(f"--scheduler {scheduler}: no scheduler answers there ({error})") from None
            with connected:
                yield connected
        else:
            count = workers or this_machine().cores
            with (
                LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
                Client(cluster) as connected,
            ):
                yield connected


def lacking(sweep: Sweep, notebook: Notebook) -> list[Design]:
    """Designs without a result, without duplicates."""
    found = {design.key: design for design in sweep.designs() if design.key not in notebook.kept}
    return list(found.values())


def results_of(sweep: Sweep, notebook: Notebook) -> list[dict[str, Any]]:
    """The results of all designs, in the file's order and with its values: older notebooks sorted the keys of JSON."""
    varied = {design.key: design.varied for design in sweep.designs()}
    return [notebook.kept[key] | {"varied": values} for key, values in varied.items()]


def run(designs: Sequence[Design], notebook: Notebook, connected: Any, tell: Callable[[dict[str, Any]], None]) -> None:
    """Plan all designs and save each result at once. `tell` is told of each. An interruption keeps the finished
    results."""
    from distributed import as_completed

    waiting = iter(designs)
    ahead = max(1, IN_FLIGHT * len(connected.scheduler_info().get("workers", {})))
    first = [connected.submit(evaluate, design, pure=False) for _, design in zip(range(ahead), waiting, strict=False)]
    running = as_completed(first)
    try:
        for done in running:
            result = done.result()
            notebook.add(result)
            tell(result)
            if (following := next(waiting, None)) is not None:
                running.add(connected.submit(evaluate, following, pure=False))
    except BaseException:
        connected.cancel(list(running.futures))
        raise
