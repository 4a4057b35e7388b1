"""A rank: `python -m netfold_lab.bench.convergence.worker CONTROL SETUP RANK`, SETUP a JSON file.

-> `begin RUN SEED`     a new model from this seed, trained by run RUN of the setup
<- `done null`
-> `epoch NUMBER`       trains that epoch's batches
<- `done {"loss": ..., "accuracy": ...}`   mean loss of this rank's batches; correct share of the test
-> `digest`
<- `done "..."`         of the weights
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from netfold.torch import ErrorFeedbackState, bfp_error_feedback_hook
from netfold_lab.bench.convergence.tasks import make_task
from netfold_lab.bench.digits import accuracy, batches
from netfold_lab.bench.train.groups import join_all
from netfold_lab.bench.train.worker import digest
from netfold_lab.bench.workers.rank import answer, in_json

LEARNING_RATE, MOMENTUM = 0.05, 0.9


class Learner:
    """Answers the coordinator's commands."""

    def __init__(self, setup: dict[str, Any], rank: int) -> None:
        self._setup = setup
        self._rank = rank
        self._groups = join_all(setup, rank)
        self._seed = 0

    def digest(self) -> str:
        """The digest of the parameters."""
        return digest(self._model.parameters())

    def begin(self, run_text: str, seed_text: str) -> None:
        """Start a run with a new model from a seed."""
        run, seed = int(run_text), int(seed_text)
        told = self._setup["runs"][run]
        group = self._groups[told["group"]]
        self._seed = seed
        self._task = make_task(self._setup["task"], seed)
        self._model = DistributedDataParallel(self._task.model, process_group=group)
        if told["feedback"]:
            self._model.register_comm_hook(ErrorFeedbackState(group), bfp_error_feedback_hook)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)

    def epoch(self, number_text: str) -> dict[str, float]:
        """One pass over the training data: returns the mean loss and the test accuracy after it."""
        number = int(number_text)
        task, world = self._task, len(self._setup["hosts"])
        order = 1000 * self._seed + number
        losses = []
        for chosen in batches(len(task.train_classes), self._rank, world, self._setup["batch"], order):
            self._optimizer.zero_grad()
            loss = functional.cross_entropy(self._model(task.train_inputs[chosen]), task.train_classes[chosen])
            loss.backward()
            self._optimizer.step()
            losses.append(loss.item())
        right = accuracy(task.model, task.test_inputs, task.test_classes)
        return {"loss": statistics.fmean(losses), "accuracy": right}


def main() -> None:
    """Join the group, then answer commands."""
    control, setup_path, rank = sys.argv[1:4]
    torch.set_num_threads(1)
    learner = Learner(json.loads(Path(setup_path).read_text()), int(rank))
    try:
        answer(control, int(rank), in_json({"begin": learner.begin, "epoch": learner.epoch, "digest": learner.digest}))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
