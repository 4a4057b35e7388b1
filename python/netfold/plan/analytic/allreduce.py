"""All-reduces in closed form: Table II of "AllReduce-Switch", and any schedule by what it sends, folds and waits for.

B is the rate between two nodes in bits a second, tau the delay from node to node in seconds, n the number of nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from netfold.algorithms import IN_NETWORK
from netfold.chooser.work import Work, serves, work_of
from netfold.plan.analytic.smart_nic import FP32_BITS


@dataclass(frozen=True)
class TopologyRow:
    """A row of Table II: seconds of delay, bits a second of gradients, bits a second the critical node has to carry."""

    delay_s: float
    bandwidth_bit_s: float
    critical_bit_s: float

    def seconds(self, size_bits: float) -> float:
        """The time of an all-reduce of so many bits."""
        return self.delay_s + size_bits / self.bandwidth_bit_s


def tree(nodes: int, rate_bit_s: float, delay_s: float, children: int = 2) -> TopologyRow:
    """Sums go up a tree of `children` at each node, the total comes down."""
    return TopologyRow(2 * math.log(nodes, children) * delay_s, rate_bit_s / 2, children * rate_bit_s)


def ring(nodes: int, rate_bit_s: float, delay_s: float) -> TopologyRow:
    """Everybody to the next, 2 (n - 1) times an n-th."""
    return TopologyRow(2 * (nodes - 1) * delay_s, nodes * rate_bit_s / (2 * (nodes - 1)), rate_bit_s)


def in_network(nodes: int, rate_bit_s: float, delay_s: float) -> TopologyRow:
    """The switch folds: everybody sends once and receives once."""
    return TopologyRow(delay_s, rate_bit_s, nodes * rate_bit_s)


@dataclass(frozen=True)
class Rates:
    """Of a node and its network: `rate_bit_s` of its link with `ratio` the compression on it, `latency_s` a step,
    `adds_s` additions where it folds, `memory_bit_s` between network card and memory, both ways together.
    `switch_adds_s`: additions a second of the folding switch, infinite where it keeps up with its ports."""

    rate_bit_s: float
    latency_s: float
    adds_s: float
    memory_bit_s: float
    ratio: float = 1.0
    switch_adds_s: float = math.inf


def algorithms(nodes: int) -> list[str]:
    """Those that serve so many nodes, in-network folding first."""
    from netfold.algorithms import host_algorithms

    return [IN_NETWORK, *(name for name in host_algorithms() if serves(name, nodes))]


def work(algorithm: str, nodes: int) -> Work:
    """Steps, sends and folds of the busiest node, counted from the schedule; each node has cores of its own."""
    if algorithm == IN_NETWORK:
        return Work(steps=2, sends=1.0, folds=0.0)
    return work_of(algorithm, nodes, nodes)


def reduce_s(algorithm: str, parameters: int, nodes: int, rates: Rates) -> float:
    """T_AR for any algorithm: its steps' latency, and the longest of sending, adding and memory traffic.

    Section IV-C of "FPGA-based AI Smart NICs" with the ring's 2 (N - 1) / N replaced by what the schedule sends and
    folds. The ring of the smart NIC touches memory twice, as a switch's client does; a host's algorithm once for
    everything it sends and everything it receives.
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
