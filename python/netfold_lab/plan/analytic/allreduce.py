"""All-reduces in closed form: Table II of "AllReduce-Switch", and any schedule by its sends, folds and steps.

B is the rate between two nodes in bits a second, tau the delay from node to node in seconds, n the number of nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from netfold.algorithms import IN_NETWORK
from netfold.chooser.work import Work, serves, work_of
from netfold_lab.plan.analytic.smart_nic import FP32_BITS


@dataclass(frozen=True)
class TopologyRow:
    """A row of Table II: delay in seconds, rate of gradients in bit/s, rate at the critical node in bit/s."""

    delay_s: float
    bandwidth_bit_s: float
    critical_bit_s: float

    def seconds(self, size_bits: float) -> float:
        """The time of an all-reduce of this number of bits."""
        return self.delay_s + size_bits / self.bandwidth_bit_s


def tree(nodes: int, rate_bit_s: float, delay_s: float, children: int = 2) -> TopologyRow:
    """Sums go up a tree with `children` children per node, and the total comes down."""
    return TopologyRow(2 * math.log(nodes, children) * delay_s, rate_bit_s / 2, children * rate_bit_s)


def ring(nodes: int, rate_bit_s: float, delay_s: float) -> TopologyRow:
    """Every node sends an n-th to the next node, 2 (n - 1) times."""
    return TopologyRow(2 * (nodes - 1) * delay_s, nodes * rate_bit_s / (2 * (nodes - 1)), rate_bit_s)


def in_network(nodes: int, rate_bit_s: float, delay_s: float) -> TopologyRow:
    """The switch folds: every node sends once and receives once."""
    return TopologyRow(delay_s, rate_bit_s, nodes * rate_bit_s)


@dataclass(frozen=True)
class Rates:
    """Rates of a node and its network. `rate_bit_s`: its link; `ratio`: the compression on it; `latency_s`: per step;
    `adds_s`: additions per second; `memory_bit_s`: between NIC and memory, both ways together. `switch_adds_s`:
    additions per second of the folding switch, infinite if it keeps up with its ports."""

    rate_bit_s: float
    latency_s: float
    adds_s: float
    memory_bit_s: float
    ratio: float = 1.0
    switch_adds_s: float = math.inf


def algorithms(nodes: int) -> list[str]:
    """The algorithms that support this number of nodes, in-network folding first."""
    from netfold.algorithms import host_algorithms

    return [IN_NETWORK, *(name for name in host_algorithms() if serves(name, nodes))]


def work(algorithm: str, nodes: int) -> Work:
    """Steps, sends and folds of the busiest node, counted from the schedule; each node has cores of its own."""
    if algorithm == IN_NETWORK:
        return Work(steps=2, sends=1.0, folds=0.0)
    return work_of(algorithm, nodes, nodes)


def reduce_s(algorithm: str, parameters: int, nodes: int, rates: Rates) -> float:
    """T_AR for any algorithm: its steps' latency, and the longest of sending, adding and memory traffic.

    Section IV-C of "FPGA-based AI Smart NICs", with the schedule's sends and folds in place of the ring's 2 (N - 1) /
    N. The ring of the smart NIC accesses memory twice, as a switch's client does. A host algorithm accesses memory once
    for everything that it sends and everything that it receives.
    """
    if nodes == 1:
        return 0.0
    done, bits = work(algorithm, nodes), float(FP32_BITS * parameters)
    sending = bits * done.sends / (rates.rate_bit_s * rates.ratio)
    adding = bits * done.folds / (rates.adds_s * FP32_BITS)
    if algorithm == IN_NETWORK:
        adding = bits * nodes / (rates.switch_adds_s * FP32_BITS)
    memory = 2 * bits * max(1.0, done.sends) / rates.memory_bit_s
    return done.steps * rates.latency_s + max(sending, adding, memory)
