"""Published training rates of pipelines beside predicted ones (plan/library/published.json, `pipelines`).

The published TFLOP/s of a GPU are operations of the model over the time of a step. Megatron-LM counts the recomputed
forward pass, too, and all products of attention (Narayanan et al., section 5.1, equation 3). For Llama 3 the page
counts the planner's operations of the model, without recomputation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from netfold_lab.plan.cluster import spec
from netfold_lab.plan.cluster.text import Text
from netfold_lab.plan.library import published
from netfold_lab.plan.models.layers import BACKWARD_OPERATIONS, Model
from netfold_lab.plan.models.transformers import TEXTS
from netfold_lab.plan.models.zoo import model_of
from netfold_lab.plan.step import stages
from netfold_lab.plan.step.answer import Job
from netfold_lab.plan.step.collectives import contenders, net_of
from netfold_lab.plan.step.sharded import Training

GIGA, TERA = 1e9, 1e12
CLUSTER = """
name: {name}
fabric: {{kind: star, ports: 8, rate_gbit_s: {nic_gbit_s}}}
servers: {{gpus: 8, nics: 8, nvlink: {{rate_gbit_s: {nvlink_gbit_s}}}}}
compute: {{device: {device}, tflop_s: {tflop_s}}}
"""


@dataclass(frozen=True)
class Row:
    """TFLOP/s of a GPU, published and predicted; the part of the step that is bubble, and GB of the fullest stage."""

    name: str
    setup: str
    source: str
    published_tflop_s: float
    tflop_s: float
    bubble: float
    gigabytes: float
    is_fitted: bool

    @property
    def off(self) -> float:
        """The relative error."""
        return self.tflop_s / self.published_tflop_s - 1


@cache
def rows() -> tuple[Row, ...]:
    """All published rates of pipelines."""
    return tuple(map(_row, published.read()["pipelines"]))


def _row(told: dict[str, Any]) -> Row:
    server = spec.from_text(Text(Path(told["name"]), CLUSTER.format(**told)))  # its graph is made again for all
    cluster = replace(server, sizes={"ports": told["gpus"]})
    model, net = model_of(told["model"]), net_of(cluster)
    workers = told["gpus"] // (told["tensor"] * told["stages"])
    training = Training(
        told["sharding"],
        told["samples"] // workers // told["batch"],
        tensor=told["tensor"],
        recompute=told["recompute"],
        pipeline=told["stages"],
        schedule="interleaved" if told["virtual"] > 1 else "1f1b",
        virtual=told["virtual"],
    )
    stages.check(cluster, net.machine, model, training)
    (contender,) = contenders(cluster, net.graph, ["nccl"], False, training.tensor, training.pipeline)
    line = Job(model, told["batch"], training).line(cluster, net, contender)
    needed = stages.memory(model, told["batch"], training, workers, cluster.software.bucket_bytes)
    counted = told["samples"] * (_megatron(model) if told["counts"] == "megatron" else _once(model))
    setup = f"{told['gpus']:,} {told['device'].upper()}: TP {told['tensor']}, PP {told['stages']}, DP {workers}"
    setup += f", {training.accumulate} micro-batches of {told['batch']}, {training.schedule}"
    return Row(
        told["name"],
        setup + (f", {training.virtual} chunks" if training.virtual > 1 else ""),
        told["source"],
        told["tflop_s_gpu"],
        counted / told["gpus"] / line.total_s / TERA,
        line.bubble_s / line.total_s,
        max(map(sum, needed)) / GIGA,
        told.get("fitted", False),
    )


def _once(model: Model) -> float:
    return (1 + BACKWARD_OPERATIONS) * model.operations


def _megatron(model: Model) -> float:
    """96 s l h^2 (1 + s / 6 h + V / 16 l h)."""
    told = TEXTS[model.name]
    blocks, width, tokens = told.blocks, told.width, told.tokens
    beside = 1 + tokens / (6 * width) + told.vocabulary / (16 * blocks * width)
    return 96.0 * tokens * blocks * width**2 * beside


def lines() -> list[str]:
    """A section of a page."""
    found = [
        "## Pipelines",
        "",
        "TFLOP/s of a GPU, as the sources count them. One row of each device tells how fast it computes; it was chosen "
        "when all rows had been seen. The other rows are predicted. The number of chunks is that of Megatron-LM's "
        "scripts for the table (examples/sc21/run_table_1.sh). That of Llama 3 405B is not published: 4 is assumed.",
        "",
        "| training | on | source | published | here | off | bubble | GB here |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows():
        mark = "*" if row.is_fitted else ""
        found.append(
            f"| {mark}{row.name}{mark} | {row.setup} | {row.source} | {row.published_tflop_s:g} | {row.tflop_s:.1f} | "
            f"{row.off:+.1%} | {row.bubble:.1%} | {row.gigabytes:.1f} |"
        )
    return [*found, "", *REMARKS, ""]


REMARKS = [
    "The misses: the rate of a GPU is one number here, but larger matrices multiply faster. So small models are "
    "predicted too fast, large ones too slow. MT-NLG trained with DeepSpeed; its rows were opened when the model "
    "was final, and all are predicted too fast. The bubble includes the wait for the slowest stage: the last one, "
    "which has the output as well. With Llama 3 405B the planner counts more activations than its GPUs have memory "
    "(80 GB); its authors trained without recomputation, freed tensors early, and changed the schedule to keep "
    "fewer.",
    "",
    "What was read again: the configurations of Megatron-LM in its scripts; the rate of 1008.0B, 502 PFLOP/s of "
    "3,072 GPUs, in the paper's abstract; those of Llama 3 and of MT-NLG in pages that quote their papers. The "
    "rates of the other five models of Narayanan et al. were not compared with the paper again.",
]
