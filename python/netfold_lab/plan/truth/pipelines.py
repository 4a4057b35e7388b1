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
from netfold_lab.plan.step.timeline import Timeline

GIGA, TERA = 1e9, 1e12
CLUSTER = """
name: {name}
fabric: {{kind: star, ports: 8, rate_gbit_s: {nic_gbit_s}}}
servers: {{gpus: 8, nics: 8, nvlink: {{rate_gbit_s: {nvlink_gbit_s}}}}}
compute: {{device: {device}, tflop_s: {tflop_s}{memory}}}
"""


@dataclass(frozen=True)
class Row:
    """TFLOP/s of a GPU, published and predicted; the part of the step that is bubble; GB of the fullest stage. `kind`:
    fitted, seen or blind."""

    name: str
    setup: str
    source: str
    published_tflop_s: float
    tflop_s: float
    bubble: float
    gigabytes: float
    kind: str

    @property
    def off(self) -> float:
        """The relative error."""
        return self.tflop_s / self.published_tflop_s - 1


@cache
def rows() -> tuple[Row, ...]:
    """All published rates of pipelines."""
    return tuple(map(row_of, published.read()["pipelines"]))


def row_of(told: dict[str, Any]) -> Row:
    """A published rate beside the predicted one. `told`: an entry of published.json."""
    model, training, workers = model_of(told["model"]), training_of(told), workers_of(told)
    line = step_of(told, model)
    needed = stages.memory(model, told["batch"], training, workers)
    return Row(
        told["name"],
        setup_of(told),
        told["source"],
        told["tflop_s_gpu"],
        rate_of(told, model, line),
        line.bubble_s / line.total_s,
        max(map(sum, needed)) / GIGA,
        told["row"],
    )


def workers_of(told: dict[str, Any]) -> int:
    """The workers with different samples."""
    return int(told["gpus"] // (told["tensor"] * told["stages"]))


def training_of(told: dict[str, Any]) -> Training:
    """How a published model was trained."""
    found = Training(
        told["sharding"],
        told["samples"] // workers_of(told) // told["batch"],
        tensor=told["tensor"],
        recompute=told["recompute"],
    )
    if told["stages"] == 1:
        return found
    schedule = "interleaved" if told["virtual"] > 1 else "1f1b"
    return replace(found, pipeline=told["stages"], schedule=schedule, virtual=told["virtual"])


def setup_of(told: dict[str, Any]) -> str:
    """The same in words."""
    training = training_of(told)
    found = f"{told['gpus']:,} {told['device'].upper()}: TP {told['tensor']}, PP {told['stages']}, "
    found += f"DP {workers_of(told)}, {training.accumulate} micro-batch"
    found += f"{'es' if training.accumulate > 1 else ''} of {told['batch']}"
    found += f", {training.schedule}" if training.schedule else ""
    return found + (f", {training.virtual} chunks" if training.virtual > 1 else "")


def step_of(told: dict[str, Any], model: Model, memory: str = "") -> Timeline:
    """The predicted step. `memory`: what the cluster file says of it."""
    server = spec.from_text(Text(Path(told["name"]), CLUSTER.format(**told, memory=memory)))
    cluster = replace(server, sizes={"ports": told["gpus"]})  # its graph is made again for all
    net, training = net_of(cluster), training_of(told)
    stages.check(cluster, net.machine, model, training)
    (contender,) = contenders(cluster, net.graph, ["nccl"], False, training.tensor, training.pipeline)
    return Job(model, told["batch"], training).line(cluster, net, contender)


def rate_of(told: dict[str, Any], model: Model, line: Timeline) -> float:
    """TFLOP/s of a GPU in a step, as the source counts them."""
    counted = told["samples"] * (_megatron(model) if told["counts"] == "megatron" else _once(model))
    return float(counted / told["gpus"] / line.total_s / TERA)


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
        "TFLOP/s of a GPU, as the sources count them. *Fitted* rows tell how fast a device computes: one for A100, one "
        "for H100. *Seen* rows were known while the model was made, and the fitted rows were chosen among "
        "them. *Blind* "
        "rows were opened when the model was final. GB: of the fullest stage; GPUs have 85.9 GB (80 GiB).",
        "",
        "| training | on | source | row | published | here | off | bubble | GB here |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows():
        found.append(
            f"| {row.name} | {row.setup} | {row.source} | {row.kind} | {row.published_tflop_s:g} | {row.tflop_s:.1f} | "
            f"{row.off:+.1%} | {row.bubble:.1%} | {row.gigabytes:.1f} |"
        )
    return [*found, "", *REMARKS, ""]


REMARKS = [
    "The misses: the rate of a GPU is one number here, but narrow models spend more time beside their matrix products. "
    "So small models are predicted too fast, large ones too slow; [two rates](#matrices-and-memory) mend that. MT-NLG "
    "is predicted 13 to 17 % too fast, and no documented cause was found: the bubble of its schedule (1F1B, 35 stages) "
    "is counted. Megatron-LM reached 163 TFLOP/s with the same model on the same computer, with three chunks a stage; "
    "the bubbles explain a part of the difference to 126. MT-NLG used DeepSpeed. The section on two rates says "
    "what was looked at. The bubble includes the wait for the slowest stage: the last one, which has the output as "
    "well.",
    "",
    "Llama 3 405B: its first chunk has only the embeddings and its last one only the output (section 3.3.2), so "
    "that a chunk is one block, and a stage of 16 has 8 chunks. Gradients and optimizer are sharded, weights are "
    "not gathered again (the same section): zero2. Gradients are added up over micro-batches before they are "
    "reduce-scattered: here over those of a chunk that follow each other, 16. An earlier version of this page assumed "
    "4 chunks, counted weights and gradients in fp32, activations of GPT's blocks, and 80 GB: 99 to 114 GB. The rate "
    "of H100 was fitted again, to the same row, when the chunks changed (588 TFLOP/s before, 560 then). "
    "Both rates were fitted again, to the same rows, when the model of rings was mended: H100 560 and A100 185 before, "
    "555 and 183 now.",
    "",
    "Where values are from. Megatron-LM: the six rates, the sizes, batches and numbers of GPUs were compared with "
    "the table in NVIDIA/Megatron-LM (images/cases_april2021.png, commit 4076ab38ee), and chunks and micro-batches "
    "with its scripts (examples/sc21/run_table_1.sh). Copies of the paper (Narayanan et al., 2021, table 1) have the "
    "same values. Llama 3: copies of the paper's text, and table 4 as glennklockwood.com/garden/llama-3.1 quotes it. "
    "MT-NLG: seconds of a step as cli99/llm-analysis quotes them (60.1, 50.2 and 44.4); the rates here are operations "
    "over these seconds, and the paper rounds them to 126, 121 and 113. Bytes of weights and optimizer: "
    "NVIDIA/Megatron-LM, dist_optimizer.md.",
]
