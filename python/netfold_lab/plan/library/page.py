"""The page docs/reference/papers/nccl.md: published collectives of GPU servers beside the predicted ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netfold_lab.plan.library import nccl, published
from netfold_lab.plan.library.published import Row, geometric_mean_error, held_out, others, rows

NAME = "nccl.md"
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
SIZES = ((True, "from 1 MiB on"), (False, "below 1 MiB"))
BOTH = (False, True)  # counted tables, all tables
MISS = 0.3  # relative error from which on a row is called a miss


def lines(command: str, trainings: Sequence[str] = ()) -> list[str]:
    """The page. `command`: what writes it. `trainings`: a section before the tables."""
    told = published.read()
    found = [
        "# NCCL on servers with several GPUs",
        "",
        f"Written by `{command}`. Published times of `all_reduce_perf`, out of place, in fp32, on all GPUs of servers, "
        "and of other collectives at the end, beside those of [the planner]"
        "(../../explanation/planner.md#servers-with-several-gpus). The sizes are every fourth power of two that the "
        "source prints. The planner gets what a cluster file states: servers, GPUs, the rates of NVLink and of the "
        "NICs, and whether the processors are AMD's. A row in *italics* was fitted to; nothing was fitted to the "
        "others.",
        "",
        "Two constants were fitted, each to one point. The form of the model was chosen with most tables in sight. "
        "Those marked *later* were opened when it was final. Some of these were blind: the model knew nothing of them. "
        "After that it was mended three times, with these tables in sight. So they are *seen* now, and have the first "
        "predictions, too, where they changed. Those marked *blind* were opened after the last mending of what they "
        "measure. In a *rack*, NVLink connects several servers. A cluster file has no racks; the planner gets one as a "
        "server with so many GPUs.",
        "",
        "| held out | counted | | all tables | |",
        "|---|---|---|---|---|",
        "| | points | geometric mean error | points | geometric mean error |",
        *_errors(),
    ]
    right = [chosen == each["winner"] for each, chosen in published.winners()]
    found += [
        "",
        f"Of {len(right)} comparisons of algorithms, the planner names the winner of {sum(right)}.",
        "",
        *_misses(),
        "",
        "The job of 1024 H100 named its algorithm and protocol, so it is compared with these. An earlier version of "
        "this page compared it with the planner's own choice (66% and 1% too fast).",
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
        miss = "" if chosen == each["winner"] else " (a miss)"
        found.append(f"| {where} | {size} | {each['source']} | {each['winner']} | {chosen}{miss} |")
    found += ["", "## Left out", ""]
    found += [f"- {each['name']}: {each['why']}." for each in told["left_out"]]
    return found


def _errors() -> list[str]:
    """The rows of the table of errors."""
    found = []
    for mark, words in (("", ""), ("later", ", later"), ("blind", ", once blind")):
        for is_large, size in SIZES:
            found.append(_error(size + words, *(held_out(is_large, each, mark) for each in BOTH)))
    for is_large, size in SIZES:
        opened = (published.blind_when_opened(is_large, each) for each in BOTH)
        found.append(_error(f"{size}, once blind, when opened", *opened))
    for kind, name in ((False, "all-gather and reduce-scatter"), (True, "all-to-all")):
        for is_large, size in SIZES:
            now, first = f"{name}, {size}", f"{name}, {size}, when opened"
            found.append(_error(now, *(others(kind, is_large, each) for each in BOTH)))
            found.append(_error(first, *(published.when_opened(is_large, kind, each) for each in BOTH)))
            found.append(_error(f"{now}, blind", *(others(kind, is_large, each, is_blind=True) for each in BOTH)))
            found.append(
                _error(f"{now}, without racks", *(others(kind, is_large, each, False, False) for each in BOTH))
            )
            blind = (others(kind, is_large, each, True, False) for each in BOTH)
            found.append(_error(f"{now}, blind, without racks", *blind))
    return [each for each in found if each]


def _error(name: str, *parts: list[Row]) -> str:
    if not parts[0]:
        return ""
    cells = " | ".join(f"{len(each)} | {geometric_mean_error(each):.1%}" for each in parts)
    return f"| {name} | {cells} |"


def _misses() -> list[str]:
    """The misses, in words."""
    return [
        "Misses:",
        "",
        "- A ring over three servers with four NICs is predicted 19 to 43% too slow (12 to 36% before the last "
        "mending). NCCL's table adds the latencies of all hops to the time of the bytes, which hides most of them in "
        "a longer ring. To subtract what is hidden made all other rings worse.",
        "- All-gathers and reduce-scatters of 16 B200 at Vultr take up to 2.1 times as long as at GCP (A4), which has "
        "the same rates. Trees carry 380 GB/s there. From 2 to 8 MiB their times are near those of Simple with the "
        "launches of AMD's processors, as if LL128 were off. NCCL turns it off where a GPU reaches its NIC only "
        "through the processor (src/graph/tuning.cc). The report does not say whether that is so.",
        "- In Google's tables (gIB) 1 KiB takes 28 to 60 us between the same servers. Their network's latency is not "
        "stated, so the planner takes that of RDMA: 33 us. From 64 MiB on they are met to 6%.",
        "- Rings of GB200 in one rack reach 454 and 482 GB/s in one of Google's pages, and 651 in another one; so do "
        "two B200 of a server (483). That is about 30 GB/s for each of 16 channels. NCCL's source gives them 32, and "
        "we found no reason.",
        "- The all-to-all between two racks of GB300 takes four times as long as predicted. Each GPU sends 24 GB/s to "
        "the other rack, and has NICs for 100. The page does not describe the network between the racks.",
        "- In the tables in bf16 nothing takes less than 43 us, and no all-to-all less than 75 us. Other tables of one "
        "server go down to 11 us. The source gives no reason.",
        "- Two tables of the same servers at GCP (A3 Ultra) differ by a factor of 2 at 1 KiB. Google's NCCL has a "
        "tuner and a network plugin of its own.",
        "- From 1 GiB on, all-gathers and reduce-scatters of one server are predicted 3 to 7% too fast, all-reduces "
        "by a ring 2 to 3%. NCCL's developers know no reason why all-gathers are slower (NVIDIA/nccl issue 1281).",
        "- Of two choices at 64 servers, the planner misses one: at 32 MiB it takes a tree, and NCCL took NVLSTree.",
        "- AWS's plugin for NCCL says that a message of p5 takes 75 us. "
        + " ".join(_with_latency(each) for each in published.read()["tables"] if "stated_us" in each)
        + " So that number is not used: one table agrees with it, the others do not.",
    ]


def _with_latency(told: dict[str, Any]) -> str:
    row = rows({**told, "latency_us": told["stated_us"] / published.CABLES})[0]
    return (
        f"With it, {size_of(row.size_bytes)} of *{told['name']}* is predicted as {1e6 * row.predicted_s:.0f} us, and "
        f"took {1e6 * row.published_s:.0f}."
    )


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
        "| launching a message of a ring between servers | "
        f"{nccl.LAUNCH_US['intel']:g} us (Intel), {nccl.LAUNCH_US['amd']:g} us (AMD) | {tuning} |",
        f"| largest slice of a ring with Simple | {nccl.SLICE_BYTES >> 20} MiB a channel | NCCL 2.30, collectives.h |",
        f"| channels of a server | {nccl.CHANNELS[3]} (A100, H100), {nccl.CHANNELS[5]} (B200) | NCCL 2.30, search.cc |",
        f"| launching a kernel | {nccl.KERNEL_US} us | fitted to one point |",
        f"| filling the pipeline of a server, but of rings with Simple | {nccl.FILL_US:g} us | fitted to one point |",
        "",
    ]


def _table(told: dict[str, Any]) -> list[str]:
    network = "" if told["servers"] == 1 else f", {told['nics']} x {told['nic_gbit_s']} Gbit/s"
    if "network" in told:
        network += f" ({told['network']}{'' if 'latency_us' in told else ': latency unknown, not counted'})"
    version = f" NCCL {told['nccl']}." if "nccl" in told else ""
    version += f" Not counted: {told['slow']}." if "slow" in told else ""
    version += f" Forced: {told['forced']}." if "forced" in told else ""
    version += _opened(told)
    mark = published.mark_of(told)
    amd = ", AMD's processors" if "processor" in told else ""
    gpus = told.get("gpus", published.GPUS)
    found = [
        f"## {told['name']}{mark and ', ' + mark}",
        "",
        f"{told['servers']} x {gpus} {told['gpu']}{network}{amd}. Source: {told['source']}.{version}",
        "",
        "| size | published, us | here, us | off | algorithm here |",
        "|---|---|---|---|---|",
    ]
    return [*found, *map(_row, rows(told)), ""]


def _opened(told: dict[str, Any]) -> str:
    """The first predictions of a table, if the model was mended after it was opened."""
    was = [f"{size_of(int(size))} {us:,.4g} us" for size, us in told.get("was_us", {}).items()]
    return f" Predicted when opened: {', '.join(was)}." if was else ""


def _row(row: Row) -> str:
    mark = "*" if row.is_fitted else ""
    miss = " (a miss)" if abs(row.off) >= MISS else ""
    numbers = f"{1e6 * row.published_s:,.4g} | {1e6 * row.predicted_s:,.4g}" if row.published_s < 1e-2 else ""
    numbers = numbers or f"{1e6 * row.published_s:,.0f} | {1e6 * row.predicted_s:,.0f}"
    return f"| {mark}{size_of(row.size_bytes)}{mark} | {numbers} | {row.off:+.0%}{miss} | {row.chosen} |"
