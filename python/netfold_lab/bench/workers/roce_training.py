"""A rank that trains the digits classifier. A switch sums its gradients over RoCE."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import torch

from netfold_lab.bench.digits import accuracy, load_digits, make_classifier, train_steps


def train(client: Any, options: dict[str, Any]) -> dict[str, Any]:
    """`steps` steps of SGD on batches of `batch` pictures. Returns the SHA-256 of the parameters' bytes, among
    others."""
    torch.set_num_threads(1)
    digits, model = load_digits(), make_classifier()
    parameters = list(model.parameters())
    gradients = torch.empty(sum(parameter.numel() for parameter in parameters))

    def sum_gradients() -> None:
        torch.cat([one.grad.flatten() for one in parameters if one.grad is not None], out=gradients)
        at = gradients.data_ptr()
        client.wait(client.all_reduce(at, at, len(gradients), "fp32", options["format"], average=True))
        start = 0
        for parameter in parameters:
            parameter.grad = gradients[start : start + parameter.numel()].view_as(parameter).clone()
            start += parameter.numel()

    begun = time.monotonic()
    loss = train_steps(
        model, digits, options["rank"], options["world"], options["steps"], options["batch"], sum_gradients
    )
    flat = torch.cat([parameter.detach().flatten() for parameter in parameters])
    return {
        "sha256": hashlib.sha256(flat.numpy().tobytes()).hexdigest(),
        "parameters": len(flat),
        "loss": loss,
        "accuracy": accuracy(model, digits.test_pictures, digits.test_labels),
        "time_s": time.monotonic() - begun,
    }
