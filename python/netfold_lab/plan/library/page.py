"""The page docs/reference/papers/nccl.md: published all-reduces of GPU servers beside the predicted ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netfold_lab.plan.library import nccl, published
from netfold_lab.plan.library.published import Row, geometric_mean_error, held_out, rows

NAME = "nccl.md"
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
MISS = 0.3  # relative error from which on a row is called a miss


def lines(command: str, trainings: Sequence[str] = ()) -> list[str]:
    """The page. `command`: what writes it. `trainings`: a section before the tables."""
    told = published.read()
    found = [
        "# NCCL on servers with several GPUs",
        "",
        f"Written by `{command}`. Published times of `all_reduce_perf`, out of place, in fp32, on all GPUs of servers "
        "with 8 of them, beside those of [the planner](../../explanation/planner.md#servers-with-several-gpus). The "
        "sizes are every fourth power of two that the source prints. The planner gets what a cluster file states: "
        "servers, GPUs, the rates of NVLink and of the NICs. A row in *italics* was fitted to; nothing was fitted to "
        "the others.",
        "",
        "Two constants were fitted, each to one point. The form of the model was chosen with most tables in sight. "
        "Those marked *later* were opened when it was final, and nothing was changed after that.",
        "",
        "| held out | counted | | all tables | |",
        "|---|---|---|---|---|",
        "| | points | geometric mean error | points | geometric mean error |",
    ]
    for only_later in (False, True):
        for is_large, name in ((True, "from 1 MiB on"), (False, "below 1 MiB")):
            parts = [held_out(is_large, with_all, only_later) for with_all in (False, True)]
            cells = " | ".join(f"{len(each)} | {geometric_mean_error(each):.1%}" for each in parts)
            found.append(f"| {name}{', later' if only_later else ''} | {cells} |")
    right = [chosen == each["winner"] for each, chosen in published.winners()]
    found += [
        "",
        f"Of {len(right)} comparisons of algorithms, the planner names the winner of {sum(right)}.",
        "",
        "Not counted are tables of a network whose latency the planner cannot know (EFA of AWS p5, TCPXO): it takes "
        "that of RDMA, which is too short. State `fabric.latency_us`, or plan with your own table (`--measured`). Not "
        "counted either are tables that reach less than half of the rate of another table of the same hardware: a rule "
        "that was made after these two had been seen.",
        "",
    ]
    found += _constants()
    found += trainings
    for each in told["tables"]:
        found += _table(each)
    found += ["## Other collectives", ""]
    for each in told["other_collectives"]:
        found += _table(each)
    found += ["## Winners", "", "| servers | size | source | published | predicted |", "|---|---|---|---|---|"]
    for each, chosen in published.winners():
        where = f"{each['servers']} x 8 {each['gpu']}, {each['nics']} x {each['nic_gbit_s']} Gbit/s"
        size = size_of(each["size_bytes"])
        found.append(f"| {where} | {size} | {each['source']} | {each['winner']} | {chosen} |")
    found += ["", "## Left out", ""]
    found += [f"- {each['name']}: {each['why']}." for each in told["left_out"]]
    return found


def size_of(size_bytes: int) -> str:
    """A size in the largest unit that divides it."""
    return next((f"{size_bytes // unit} {name}" for unit, name in UNITS if size_bytes % unit == 0), f"{size_bytes} B")


def _constants() -> list[str]:
    tuning = "NCCL 2.30, tuning table"
    return [
        "## Constants",
        "",
        "| constant | value | from |",
        "|---|---|---|",
        "| part of NVLink's rate that a copy reaches | 0.80 (V100, A100, B200), 0.82 (H100) | NCCL 2.30, topo.h |",
        f"| start and hop of ring and tree; LL, LL128, Simple | {nccl.START['ring']['LL']} to 14 us | {tuning} |",
        f"| start of NVLS; a hop of NVLSTree | {nccl.NVLS_US:g} us; {nccl.NVLS_TREE_HOP_US:g} us | {tuning} |",
        f"| part of the bound that NVLS reaches | {nccl.NVLS_USABLE[4]} (H100), {nccl.NVLS_USABLE[5]} (B200) "
        f"| {tuning} |",
        f"| part of the bound that trees reach | {nccl.TREE_SIMPLE} | {tuning} |",
        f"| part of the NICs' rate | {nccl.NICS_USABLE:.2f} | 46 to 48 GB/s of 400 Gbit/s: nccl-tests issue 290 |",
        f"| launching a kernel | {nccl.KERNEL_US} us | fitted to one point |",
        f"| filling the pipeline of a server | {nccl.FILL_US:g} us | fitted to one point |",
        "",
    ]


def _table(told: dict[str, Any]) -> list[str]:
    network = "" if told["servers"] == 1 else f", {told['nics']} x {told['nic_gbit_s']} Gbit/s"
    if "network" in told:
        network += f" ({told['network']}{'' if 'latency_us' in told else ': latency unknown, not counted'})"
    version = f" NCCL {told['nccl']}." if "nccl" in told else ""
    version += f" Not counted: {told['slow']}." if "slow" in told else ""
    later = ", later" if "later" in told else ""
    found = [
        f"## {told['name']}{later}",
        "",
        f"{told['servers']} x 8 {told['gpu']}{network}. Source: {told['source']}.{version}",
        "",
        "| size | published, us | here, us | off | algorithm here |",
        "|---|---|---|---|---|",
    ]
    return [*found, *map(_row, rows(told)), ""]


def _row(row: Row) -> str:
    mark = "*" if row.is_fitted else ""
    miss = " (a miss)" if abs(row.off) >= MISS else ""
    numbers = f"{1e6 * row.published_s:,.4g} | {1e6 * row.predicted_s:,.4g}" if row.published_s < 1e-2 else ""
    numbers = numbers or f"{1e6 * row.published_s:,.0f} | {1e6 * row.predicted_s:,.0f}"
    return f"| {mark}{size_of(row.size_bytes)}{mark} | {numbers} | {row.off:+.0%}{miss} | {row.chosen} |"
