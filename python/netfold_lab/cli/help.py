"""The common parts of every `--help`: wrapped paragraphs, flags without a type, and examples to copy."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

EXAMPLES = {
    "demo": ("netfold demo", "netfold demo --workers 8 --epochs 5 --page demo8.html"),
    "schedule": (
        "netfold schedule ring --workers 4 --count 1000",
        "netfold schedule hdrm --workers 8 --sub-nodes 2 --switches 4 --picture h.png",
        "netfold schedule hierarchical --workers 16 --group 4 --goal hier.goal",
        "netfold schedule list",
    ),
    "bench": (
        "netfold bench codec",
        "netfold bench allreduce --ranks 4 --against gloo",
        "netfold bench train --preset tiny",
    ),
    "bench codec": (
        "netfold bench codec --size-bytes 65536",
        "netfold bench codec --kernels all --mantissa 4 --size-bytes 65536",
    ),
    "bench allreduce": (
        "netfold bench allreduce --ranks 4 --algorithm direct,ring --against gloo",
        "netfold bench allreduce --size-bytes 1048576 --format bfp",
        "netfold bench allreduce --tune --ranks 4",
    ),
    "bench switch": (
        "netfold bench switch --workers 2,4,8 --format fp32,bfp",
        "netfold bench switch --search",
        "netfold bench switch --protocol roce --format fp32,int32",
        "netfold bench switch --device veth --workers 4 --search",
        "netfold bench switch --frames 1e9 --faults loss=0.002,reorder=0.005",
    ),
    "bench roce": (
        "netfold bench roce --workers 4 --size-bytes 1048576 --loss 0.01",
        "netfold bench roce --workers 8 --version 2 --collective reduce-scatter",
        "netfold bench roce --workers 3 --format bfp --pcap rank0.pcap",
    ),
    "bench gpu": (
        "netfold bench gpu --out step.png",
        "netfold bench gpu --rate-mbit-s 10000 --batch 65536 --against nccl",
    ),
    "bench outages": (
        "netfold bench outages --outages 50 --out steps.png",
        "netfold bench outages --how hang --down-s 10",
    ),
    "bench deaths": (
        "netfold bench deaths --ranks 8,64",
        "netfold bench deaths --ranks 8,64 --by reconfigure --replace",
        "netfold bench deaths --deaths 6 --every-s 15 --against ''",
    ),
    "bench case1": (
        'netfold bench case1 --models "ResNet 50" --scale 0.05 --out case1.png',
        "netfold bench case1 --full --rate-mbit-s 0",
    ),
    "bench train": (
        "netfold bench train --preset tiny --workers 2",
        "netfold bench train --model resnet50 --algorithm ring --out step.png",
        "netfold bench train --sweep-workers 2,4,6 --algorithm ring,rabenseifner",
    ),
    "bench convergence": (
        "netfold bench convergence --epochs 10 --seeds 1",
        "netfold bench convergence --task mlp --mantissas 7,4,2 --out loss.png",
    ),
    "bench claims": ("netfold bench claims",),
    "lab": (
        "netfold lab run --workers 4 --size-bytes 1048576",
        "netfold lab up --workers 2",
        "netfold lab exec w0 -- ip addr",
        "netfold lab down",
    ),
    "lab up": (
        "netfold lab up --workers 4 --rate-mbit-s 100",
        "netfold lab up --fabric bigraph --shape 2x4",
    ),
    "lab exec": ("netfold lab exec w0 -- ip addr", "netfold lab exec --lab nf12ab34 switch -- netfold switch"),
    "lab down": ("netfold lab down", "netfold lab down nf12ab34"),
    "lab run": (
        "netfold lab run --workers 4 --size-bytes 1048576 --against gloo",
        "netfold lab run --fabric bigraph --shape 2x4 --links-out links.png",
        "netfold lab run --sweep-workers 2..8 --out ratio.png",
        "netfold lab run --loss 0.01 --reorder 0.05",
    ),
    "plan": (
        "netfold plan examples/clusters/eflops.yaml --model resnet50 --batch 64",
        "netfold plan --model mlp --batch 448 --nodes 3..32 --picture scaling.png",
        "netfold plan check-deadlock examples/clusters/traditional.yaml",
    ),
    "plan step": (
        "netfold plan examples/clusters/eflops.yaml --model resnet50 --batch 64",
        "netfold plan --model mlp --batch 448 --nodes 3..32 --picture scaling.png",
    ),
    "plan collective": ("netfold plan collective examples/clusters/h100.yaml --size-bytes 1MiB,1GiB",),
    "plan check-deadlock": ("netfold plan check-deadlock examples/clusters/eflops.yaml",),
    "plan papers": ("netfold plan papers --out papers",),
    "plan check-lab": ("netfold plan check-lab --fabric star --shape 1x2 --repeat 1",),
    "plan check-train": (
        "netfold plan check-train --within 3,8 --out steps.png",
        "netfold plan check-train --workers 4 --batch 448 --algorithm ring --repeat 3",
    ),
    "plan calibrate": ("netfold plan calibrate --ranks 4 --link tcp --out here.json",),
    "plan export": (
        "netfold plan export examples/clusters/eflops.yaml --algorithm hdrm",
        "netfold plan export examples/clusters/fat-tree.yaml --format htsim,hpcc",
    ),
    "plan sweep": ("netfold plan sweep examples/clusters/sweep.yaml --picture front.png",),
    "simulate": (
        "netfold simulate --topology bigraph:16x64 --algorithm hdrm,ring",
        "netfold simulate --topology star:8 --fold-gbit-s 800 --algorithm in-network",
        "netfold simulate --topology leaf-spine:8x4x8 --trace ring.json",
        "netfold simulate --topology bigraph:2x4 --spread hash --check-deadlock",
        "netfold simulate fig16 --picture fig16.png",
    ),
    "simulate fig16": ("netfold simulate fig16 --nodes 64,256 --seeds 5 --picture fig16.png",),
    "simulate bench": ("netfold simulate bench --workers 256 --large 0",),
    "simulate apart": ("netfold simulate apart --start own-receive",),
    "rtl": (
        "netfold rtl bench --lanes 16",
        "netfold rtl test --values 10000000 --rings 1000",
        "netfold rtl train --format bfp --workers 4",
        "netfold rtl report --gbit-s 40",
    ),
    "rtl build": ("netfold rtl build --lanes 16",),
    "rtl test": ("netfold rtl test --values 10000 --rings 5 --loss 0.1",),
    "rtl bench": ("netfold rtl bench --worlds 2,4 --count 65536",),
    "rtl train": ("netfold rtl train --format fp32 --workers 2 --steps 10",),
    "rtl nic": ("netfold rtl nic /tmp/nic0", "netfold rtl nic /tmp/nic0 --interface eth1"),
    "rtl coverage": ("netfold rtl coverage --runs 10",),
    "rtl report": ("netfold rtl report --gbit-s 40",),
    "rtl timing": (
        "netfold rtl timing --design switch --no-place",
        "netfold rtl timing ring_plan --design nic40",
    ),
    "rtl constraints": (
        "netfold rtl constraints --ports 4 --out build/constraints",
        "netfold rtl constraints --design nic --ports 1",
    ),
    "rtl board": ("netfold rtl board --out build/board", "netfold rtl board --device LFE5UM-45F --seed 3"),
    "rtl lint": ("netfold rtl lint",),
    "rtl prove": ("netfold rtl prove",),
    "rtl mutate": (
        "netfold rtl mutate --listed",
        "netfold rtl mutate --module silence --module psn_window --count 20",
        "netfold rtl mutate --count 300 --seed 7 --jobs 4 --out campaign.json",
    ),
    "rtl registers": ("netfold rtl registers",),
    "rtl drawings": ("netfold rtl drawings",),
    "rtl switch": (
        "netfold rtl switch test --frames 100000",
        "netfold rtl switch bench --plot latencies.png",
        "netfold rtl switch build --ports 4",
    ),
    "rtl switch build": ("netfold rtl switch build --ports 4",),
    "rtl switch test": ("netfold rtl switch test --runs 5 --frames 1000 --formats fp32",),
    "rtl switch bench": ("netfold rtl switch bench --workers 2,8 --plot latencies.png",),
    "rtl switch train": ("netfold rtl switch train --workers 2 --format bfp",),
    "rtl switch report": ("netfold rtl switch report --ports 2,8 --plot growth.png",),
}


class FlagsWithoutType:
    """For a command's class: `--help` gives an option its type, such as <int>, only where the option takes a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options and arguments, as typer makes them."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in params:
            if getattr(each, "is_flag", False) and each.metavar is None:
                each.metavar = ""
        return params


def commands(app: typer.Typer, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command and group below `app`: its words, such as `bench codec`, and typer's record of it."""
    for command in app.registered_commands:
        name = command.name or command.callback.__name__  # type: ignore[union-attr]
        yield " ".join((*path, name)), command
    for group in app.registered_groups:
        words = (*path, str(group.name))
        yield " ".join(words), group
        yield from commands(group.typer_instance, words)  # type: ignore[arg-type]


def teach(app: typer.Typer) -> None:
    """Wrap every command's text, and append its examples."""
    for words, record in commands(app):
        own = getattr(record, "typer_instance", None)  # a group's text is its callback's
        callback = (own.registered_callback or own.info).callback if own else record.callback
        written = inspect.getdoc(callback) if callback else None
        if written:
            record.help = "\n\n".join(" ".join(part.split()) for part in written.split("\n\n"))
        if words in EXAMPLES:
            record.epilog = "\n" + "\n  ".join(("Examples:", *EXAMPLES[words]))
