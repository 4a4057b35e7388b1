"""A rank of `netfold bench gpu`: `python -m netfold_lab.bench.workers.gpu CONTROL SETUP RANK`.

SETUP is a JSON file: hosts, store, timeout_s, switch, device, layers, width, batch, and `ways`, each with `wrap`,
`system` and `settings`.

All ranks share the first GPU. Each way has a model of its own, with the same first parameters on every rank, and data
of the rank's own. Commands:

    -> `step WAY`            one step of training
    <- `done {"step_s": 0.2, "python_s": 0.01}`       `python_s`: until backward has returned
    -> `digest WAY`
    <- `done "9f86d081"`     of the way's parameters
    -> `trace WAY PATH`      one more step; rank 0 writes torch's trace of it
    <- `done null`
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import ExitStack, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import FileStore
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function, schedule

import netfold.torch
from netfold.torch.devices import is_accelerator, module_of
from netfold_lab.bench.gpu_timeline import BACKWARD
from netfold_lab.bench.train.worker import digest
from netfold_lab.bench.workers.rank import answer, in_json

LEARNING_RATE = 1e-3


class Groups:
    """The process groups of a rank, and its Netfold groups beside them."""

    def __init__(self, setup: dict[str, Any], rank: int) -> None:
        self._setup, self._rank, self.world = setup, rank, len(setup["hosts"])
        self.device = torch.device(setup["device"])
        timeout = timedelta(seconds=setup["timeout_s"])
        dist.init_process_group(
            "gloo", store=FileStore(setup["store"], self.world), rank=rank, world_size=self.world, timeout=timeout
        )
        inner = "nccl" if self.device.type == "cuda" else "gloo"
        groups: list[Any] = [dist.new_group([each], backend=inner) for each in range(self.world)]
        self._own = groups[rank]
        self._of_torch: dict[str, Any] = {}
        self._of_netfold: dict[str, netfold.torch.FoldingGroup] = {}
        self._open = ExitStack()

    def of_torch(self, backend: str) -> Any:
        """A process group of all ranks."""
        if backend not in self._of_torch:
            self._of_torch[backend] = dist.new_group(backend=backend)
        return self._of_torch[backend]

    def of_netfold(self, settings: dict[str, Any]) -> netfold.torch.FoldingGroup:
        """A Netfold group of all ranks."""
        key = json.dumps(settings)
        if key not in self._of_netfold:
            given = {**settings, "bind": f"{self._setup['hosts'][self._rank]}:0", "timeout_s": self._setup["timeout_s"]}
            if given.pop("with_switch"):
                given["switch"] = self._setup["switch"]
            self._of_netfold[key] = self._open.enter_context(netfold.torch.connect(**given))
        return self._of_netfold[key]

    def sharded_here(self) -> DeviceMesh:
        """This rank by itself: FSDP2 gathers and scatters nothing."""
        return DeviceMesh.from_group(self._own, self.device.type)

    def sharded_here_and_replicated(self, backend: str) -> DeviceMesh:
        """The same on every rank, and FSDP2 averages over the ranks with a backend of torch."""
        return DeviceMesh.from_group(
            [self.of_torch(backend), self._own],
            self.device.type,
            mesh=torch.arange(self.world).view(self.world, 1),
            mesh_dim_names=("replicate", "shard"),
        )

    def close(self) -> None:
        """Leave all groups."""
        self._open.close()
        dist.destroy_process_group()


class Way:
    """A model that is wrapped by DDP or FSDP2, and the system that averages its gradients."""

    def __init__(self, groups: Groups, setup: dict[str, Any], way: dict[str, Any], rank: int) -> None:
        self._device = groups.device
        self._communicates = way["system"] != "none"
        torch.manual_seed(0)
        width = setup["width"]
        layers = [each for _ in range(setup["layers"]) for each in (nn.Linear(width, width), nn.ReLU())]
        model = nn.Sequential(*layers).to(self._device)
        self.model: Any = self._ddp(model, groups, way) if way["wrap"] == "ddp" else self._fsdp(model, groups, way)
        torch.manual_seed(1 + rank)
        self._inputs = torch.randn(setup["batch"], width, device=self._device)
        self._optimizer = torch.optim.SGD(self.model.parameters(), LEARNING_RATE)

    def _ddp(self, model: nn.Module, groups: Groups, way: dict[str, Any]) -> nn.Module:
        with_torch = way["system"] in ("gloo", "nccl")
        wrapped = DistributedDataParallel(
            model,
            process_group=groups.of_torch(way["system"]) if with_torch else None,
            gradient_as_bucket_view=True,
        )
        if way["system"] == "netfold":
            wrapped.register_comm_hook(groups.of_netfold(way["settings"]), netfold.torch.fold_hook)
        return wrapped

    def _fsdp(self, model: nn.Sequential, groups: Groups, way: dict[str, Any]) -> nn.Module:
        with_torch = way["system"] in ("gloo", "nccl")
        mesh = groups.sharded_here_and_replicated(way["system"]) if with_torch else groups.sharded_here()
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        if way["system"] == "netfold":
            netfold.torch.average_shards(model, groups.of_netfold(way["settings"]))
        return model

    def step(self) -> dict[str, float]:
        """Train one step."""
        self._synchronize()
        dist.barrier()
        begun = time.monotonic()
        alone = isinstance(self.model, DistributedDataParallel) and not self._communicates
        with self.model.no_sync() if alone else nullcontext():
            loss = self.model(self._inputs).square().mean()
            with record_function(BACKWARD):
                loss.backward()
        python_s = time.monotonic() - begun
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._synchronize()
        return {"step_s": time.monotonic() - begun, "python_s": python_s}

    def _synchronize(self) -> None:
        if is_accelerator(self._device):
            module_of(self._device).synchronize()

    def digest(self) -> str:
        """A checksum of the parameters, which are whole on every rank."""
        whole = [getattr(each, "_local_tensor", each) for each in self.model.parameters()]
        return digest([each.detach().cpu() for each in whole])


class Worker:
    """A rank's ways."""

    def __init__(self, setup: dict[str, Any], rank: int) -> None:
        self._rank = rank
        self.groups = Groups(setup, rank)
        self._ways = [Way(self.groups, setup, way, rank) for way in setup["ways"]]

    def step(self, way: str) -> dict[str, float]:
        """Train one step of a way."""
        return self._ways[int(way)].step()

    def digest(self, way: str) -> str:
        """Of a way's parameters."""
        return self._ways[int(way)].digest()

    def trace(self, way: str, path: str) -> None:
        """Train two steps; rank 0 traces the second one."""
        activities = [ProfilerActivity.CPU]
        if is_accelerator(self.groups.device):
            activities.append(ProfilerActivity.CUDA)
        if self._rank != 0:
            for _ in range(2):
                self._ways[int(way)].step()
            return
        with profile(activities=activities, schedule=schedule(wait=0, warmup=1, active=1, repeat=1)) as profiler:
            for _ in range(2):
                self._ways[int(way)].step()
                profiler.step()
        profiler.export_chrome_trace(path)


def main() -> None:
    """Join the groups, then answer commands."""
    control, setup_path, rank = sys.argv[1:4]
    torch.set_num_threads(1)
    os.environ.setdefault("NETFOLD_LOG", "warning")
    os.environ["NCCL_HOSTID"] = f"rank-{rank}"  # else NCCL refuses two ranks on one GPU
    worker = Worker(json.loads(Path(setup_path).read_text()), int(rank))
    try:
        answer(control, int(rank), in_json({"step": worker.step, "digest": worker.digest, "trace": worker.trace}))
    finally:
        worker.groups.close()


if __name__ == "__main__":
    main()
