"""Published training rates of language models beside predicted ones (plan/library/published.json, `trainings`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from netfold_lab.plan.cluster import spec
from netfold_lab.plan.cluster.text import Text
from netfold_lab.plan.library import published
from netfold_lab.plan.models.zoo import model_of
from netfold_lab.plan.step import tensor
from netfold_lab.plan.step.answer import Job, outcomes
from netfold_lab.plan.step.collectives import net_of
from netfold_lab.plan.step.sharded import Training, bytes_of

GIB = 1 << 30
CLUSTER = """
name: {name}
fabric: {{kind: star, ports: {gpus}, rate_gbit_s: {nic_gbit_s}}}
servers: {{gpus: 8, nics: 8, nvlink: {{rate_gbit_s: {nvlink_gbit_s}}}}}
compute: {{device: h100, tflop_s: {tflop_s}, memory_gb: {memory_gb}}}
"""


@dataclass(frozen=True)
class Row:
    """Tokens per second and GPU, and GiB of a GPU, published (None: not told) and predicted."""

    name: str
    source: str
    published_tokens_s: float
    tokens_s: float
    published_gib: float | None
    gib: float
    is_fitted: bool

    @property
    def off(self) -> float:
        """The relative error of the tokens."""
        return self.tokens_s / self.published_tokens_s - 1


@cache
def rows() -> tuple[Row, ...]:
    """All published training rates."""
    return tuple(map(_row, published.read()["trainings"]))


def _row(told: dict[str, Any]) -> Row:
    cluster = spec.from_text(Text(Path(told["name"]), CLUSTER.format(**told)))
    model, net = model_of(told["model"]), net_of(cluster)
    group, recompute = told["tensor"], told["recompute"]
    job = Job(model, told["batch"], Training("zero3", tensor=group, recompute=recompute))
    step_s = outcomes(cluster, net, job, ["nccl"])[0].timeline.total_s
    state = bytes_of(job.part(net, cluster.device), job.training, job.workers(net), cluster.software.bucket_bytes)
    kept = tensor.activation_bytes(model, told["batch"], group, recompute)
    tokens = told["batch"] * model.tokens / group / step_s
    return Row(
        told["name"],
        told["source"],
        told["tokens_s"],
        tokens,
        told.get("memory_gib"),
        (state + kept) / GIB,
        told.get("fitted", False),
    )


def lines() -> list[str]:
    """A section of a page."""
    found = [
        "## Training",
        "",
        "Tokens per second and GPU of TorchTitan on servers with 8 H100 (500 W) and 8 x 400 Gbit/s, in bf16. One row "
        "tells how fast these GPUs compute: 400 TFLOP/s. The other rows are predicted. Memory is that of weights, "
        "gradients, Adam and activations; the published values are the most that was reserved.",
        "",
        "| training | source | published | here | off | published, GiB | here, GiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows():
        mark = "*" if row.is_fitted else ""
        memory = f"{row.published_gib:g}" if row.published_gib else ""
        found.append(
            f"| {mark}{row.name}{mark} | {row.source} | {row.published_tokens_s:,.4g} | {row.tokens_s:,.4g} | "
            f"{row.off:+.1%} | {memory} | {row.gib:.1f} |"
        )
    return [*found, ""]
