"""Section VII of EFLOPS beyond Figure 12: steps of ResNet-50 (Figure 13), BERT (Figure 15b), and costs (VII-D)."""

from __future__ import annotations

from netfold_lab.plan.cluster import costs, spec
from netfold_lab.plan.cluster.devices import Device
from netfold_lab.plan.cluster.server import even_layout
from netfold_lab.plan.models.zoo import model_of
from netfold_lab.plan.papers import eflops_latency, eflops_server
from netfold_lab.plan.papers.figure import ASSUMED, FITTED, Constant, Figure, Row
from netfold_lab.plan.step.timeline import timeline

WORKERS = 64
BATCH = 128  # per GPU and step: not in the paper
IMAGES_S = 81_027 / 15.88 / 4  # of a GPU in one server: the end-to-end speed-up over 4 GPUs
BERT_MS = {"ring": 212.0, "hdrm": 135.0}
PRICES: dict[str, float] = {"switch": 10_000, "nic": 600, "cable": 100, "server": 20_000, "gpu": 11_500}
HALF = 2  # mixed precision: gradients are sent as fp16
BUCKET_BYTES = 25 << 20


def figure_13() -> Figure:
    """Images per second of 64 GPUs."""
    model = model_of("resnet50")
    device = Device(IMAGES_S * 3 * model.operations, 750e9, 150e9)

    def images_s(algorithm: str, slower: float) -> float:
        def reduce_s(size: float) -> float:
            return slower * eflops_latency.seconds(algorithm, WORKERS, int(size / HALF))

        return WORKERS * BATCH / timeline(model, BATCH, device, BUCKET_BYTES, reduce_s).total_s

    four = images_s("hdrm", 1.0)
    one = images_s("ring", eflops_server.ring_bit_s(4, "nic") / eflops_server.ring_bit_s(1, "pcie+nic"))
    return Figure(
        "13",
        "ResNet-50 on 64 GPUs",
        [
            "All-reduces as in Figure 12 at 64 workers, beside the backward pass: HDRM; with one NIC per server the "
            "ring, slower by the factor of Figure 2.",
        ],
        [
            Row("four NICs per server", 81_027, four, "images/s", FITTED),
            Row("one NIC per server", 73_596, one, "images/s", FITTED),
            Row("four over one", 81_027 / 73_596, four / one, "x", FITTED),
        ],
        constants=[
            Constant("a GPU without communication", f"{IMAGES_S:.0f} images/s", "fitted: 81,027 over 15.88 and 4 GPUs"),
            Constant("batch", f"{BATCH}", "assumed"),
            Constant("gradients and buckets", "fp16, 25 MiB", "assumed"),
            Constant("memory bandwidth in the update", "750 GB/s", "assumed: 83% of the V100's 900 GB/s"),
            Constant("all-reduces", "as in Figure 12", "fitted there; one NIC by Figure 2's 2.31x"),
        ],
    )


def figure_15b() -> Figure:
    """BERT's communication."""
    size = model_of("bert-base").parameters * 4
    return Figure(
        "15b",
        "BERT-base on 64 GPUs: communication of a step",
        ["All gradients in fp32 in one all-reduce, as in Figure 12 at 64 workers. The in-house model may be larger."],
        [Row(name, time, 1e3 * eflops_latency.seconds(name, WORKERS, size), "ms") for name, time in BERT_MS.items()]
        + [
            Row(
                "ring over hdrm",
                BERT_MS["ring"] / BERT_MS["hdrm"],
                eflops_latency.seconds("ring", WORKERS, size) / eflops_latency.seconds("hdrm", WORKERS, size),
                "x",
            )
        ],
    )


def section_vii_d() -> Figure:
    """The cost of four NICs per server and a BiGraph, relative to one NIC and a fat tree."""
    layout = even_layout(4, 4, 2, 2, 90e9, 90e9, 20e9, "nic")
    eflops = spec.Cluster(
        "EFLOPS",
        "bigraph",
        {"sub_nodes": 4, "switches": 16},
        100e9,
        0.0,
        layout=layout,
        virtual_switches=2,
        prices=PRICES,
    )
    single = even_layout(4, 1, 2, 2, 90e9, 90e9, 20e9, "nic")
    sizes = {"leaves": 4, "spines": 2, "ports_per_leaf": 4}
    other = spec.Cluster("one card", "leaf-spine", sizes, 100e9, 0.0, layout=single, prices=PRICES)
    more = (costs.price_of(eflops) or 0) / (costs.price_of(other) or 1)
    return Figure(
        "section VII-D",
        "Cost of 64 GPUs with four NICs per server, relative to one NIC",
        ["EFLOPS: 8 switches, each split in two by VLANs; the other: 4 leaves and 2 aggregation switches."],
        [Row("four NICs over one", 1.04, more, "x", ASSUMED)],
        constants=[Constant(f"a {name}", f"{price:,.0f} USD", "assumed") for name, price in PRICES.items()],
    )
