"""Published training rates of GPT beside those predicted with two rates of a GPU: of matrix products and of memory.

The models are computed as the software of 2021 did (plan/models/transformers.py). The rate of memory is the one that
the planner takes for updates. That of matrix products is fitted to one row.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import cache
from typing import Any

from netfold_lab.plan.cluster.devices import DEVICES
from netfold_lab.plan.library import published
from netfold_lab.plan.models.transformers import decoder
from netfold_lab.plan.models.zoo import model_of
from netfold_lab.plan.truth import pipelines

DEVICE = "a100"
MATRICES_TFLOP_S = 214  # fitted to GPT 145.6B
MEMORY_GBYTE_S = DEVICES[DEVICE].update_bytes_s / pipelines.GIGA


@dataclass(frozen=True)
class Row:
    """TFLOP/s of a GPU, published, and predicted with one rate and with two. Seconds of a step, predicted with two.
    `kind`: fitted, seen or blind."""

    name: str
    setup: str
    kind: str
    micro_batches: int
    published_tflop_s: float
    one_tflop_s: float
    two_tflop_s: float
    two_s: float

    @property
    def published_s(self) -> float:
        """The published time of a step."""
        return self.two_s * self.two_tflop_s / self.published_tflop_s

    @property
    def off_one(self) -> float:
        """The relative error with one rate."""
        return self.one_tflop_s / self.published_tflop_s - 1

    @property
    def off_two(self) -> float:
        """The relative error with two rates."""
        return self.two_tflop_s / self.published_tflop_s - 1


@cache
def rows() -> tuple[Row, ...]:
    """All published rates of this device."""
    told = published.read()
    return tuple(_row(each) for each in (*told["one_stage"], *told["pipelines"]) if each["device"] == DEVICE)


def _row(told: dict[str, Any]) -> Row:
    model, of_2021 = model_of(told["model"]), decoder(told["model"], is_of_2021=True)
    one = pipelines.step_of(told, model)
    memory = f", memory_gbyte_s: {MEMORY_GBYTE_S:g}"
    two = pipelines.step_of(told | {"tflop_s": MATRICES_TFLOP_S}, of_2021, memory)
    return Row(
        told["name"],
        pipelines.setup_of(told),
        told["row"],
        pipelines.training_of(told).accumulate,
        told["tflop_s_gpu"],
        pipelines.rate_of(told, model, one),
        pipelines.rate_of(told, model, two),
        two.total_s,
    )


def mean_errors() -> tuple[float, float]:
    """The mean error of the rows that are only seen, with one rate and with two."""
    seen = [row for row in rows() if row.kind == "seen"]
    one, two = (statistics.mean(map(abs, each)) for each in zip(*((r.off_one, r.off_two) for r in seen), strict=True))
    return one, two


def lines() -> list[str]:
    """A section of a page."""
    found = [
        "## Matrices and memory",
        "",
        "A model does more than multiply matrices: it normalizes, adds, drops out, and stores the scores of attention. "
        "The memory bounds that. With `compute.memory_gbyte_s` a plan counts it apart, and `tflop_s` is the rate of "
        "only the matrix products ([how](../../explanation/planner.md#matrices-and-memory)). Bytes are counted from "
        "the operations that Megatron-LM had in 2021. The memory of an A100 has "
        f"{MEMORY_GBYTE_S:,g} GB/s, as for updates; {MATRICES_TFLOP_S} TFLOP/s are fitted to one row (218 before rings "
        "were mended). *One rate*: as above, without `memory_gbyte_s`. *Seen* rows were known while the bytes were "
        "counted. *Blind* rows changed nothing.",
        "",
        "| training | on | row | published | one rate | off | two rates | off |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows():
        found.append(
            f"| {row.name} | {row.setup} | {row.kind} | {row.published_tflop_s:g} | {row.one_tflop_s:.1f} | "
            f"{row.off_one:+.1%} | {row.two_tflop_s:.1f} | {row.off_two:+.1%} |"
        )
    one, two = mean_errors()
    blind = [row for row in rows() if row.kind == "blind"]
    return [
        *found,
        "",
        f"The mean error of the seen rows is {one:.1%} with one rate and {two:.1%} with two. Narrow models move more "
        "for each product. Megatron-LM's authors measured that: to fuse these operations made a model of 175 billion "
        "parameters 19% faster, and a wider one of 530 billion 11% (section 5.8).",
        "",
        *_mt_nlg(blind),
        "",
        "Where values are from: table 1 of Narayanan et al., 2021, as several copies of it have it, and micro-batches "
        "from NVIDIA/Megatron-LM, examples/sc21/run_table_1.sh. The paper says that all of the table is interleaved; "
        "the script has no chunks for GPT 39.1B and 1008.0B, and the rows follow the script.",
        "",
    ]


def _mt_nlg(blind: list[Row]) -> list[str]:
    first, last = blind[0], blind[-1]
    batches = first.micro_batches - last.micro_batches
    each, own = ((getattr(first, name) - getattr(last, name)) / batches for name in ("published_s", "two_s"))
    rest, own_rest = first.published_s - each * first.micro_batches, first.two_s - own * first.micro_batches
    least, most = min(row.off_two for row in blind), max(row.off_two for row in blind)
    return [
        f"MT-NLG is predicted {least:.0%} to {most:.0%} too fast: with two rates it is worse, because its blocks are "
        "wide. No cause is documented. The computer is not: Megatron-LM trained a GPT of the same size on 2,240 A100 "
        "at 42.1% of their peak with recomputation, 175 TFLOP/s as counted here (Korthikanti et al., 2022, abstract). "
        "The three steps differ in the number of workers, and so of micro-batches. A line through the first and the "
        "last one has "
        f"{each:.3f} s for each micro-batch and {rest:.1f} s for the rest, the predicted one {own:.3f} s and "
        f"{own_rest:.1f} s. So {rest - own_rest:.1f} of the {first.published_s - first.two_s:.1f} s that the first row "
        "misses do not grow with micro-batches. A pipeline that fills and drains twice as long would take as much; "
        "nothing says that it did.",
        "",
        "Looked at, and not the cause: what the rate counts (the authors of PaLM give 30.2% of the peak without "
        "recomputation, which is the same 126 TFLOP/s); the order of passes (DeepSpeed's, with sends that wait for the "
        "receiver, takes as long as 1F1B); messages between stages (DeepSpeed divides activations among a "
        "tensor-parallel group, too); the sum of gradients (7.6 GB of a GPU in fp32, 0.6 s).",
    ]
