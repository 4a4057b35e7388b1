"""The compiled half of netfold; `import netfold` is the way in."""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy
import numpy.typing
from numpy.typing import NDArray

from netfold.errors import NetfoldError as NetfoldError


def encode(x: object, block: int = 16, mantissa: int = 7, *, seed: int | None = None, first_index: int = 0) -> numpy.typing.NDArray[Any]:
    """
    Block floating point bytes of an array, as uint8. With a seed, rounds stochastically: a pure function of the value, the seed and the element's index (first_index for x[0]).
    """

def decode(data: object, count: int, block: int = 16, mantissa: int = 7) -> numpy.typing.NDArray[Any]:
    """The float32 values of block floating point bytes."""

def fold(arrays: Sequence[Any], format: str = 'fp32', block: int = 16, mantissa: int = 7) -> numpy.typing.NDArray[Any]:
    """
    The sum of arrays, one a rank, pairwise in rank order as it travels in `format`: int32 arrays for int32, else float32 arrays, encoded first where the format is narrower, and a float32 result.
    """

def pack(x: object, format: str, block: int = 16, mantissa: int = 7) -> numpy.typing.NDArray[Any]:
    """
    An array's bytes on the wire. float32, float16, int32, or uint16 for the bits of bf16.
    """

def unpack(data: object, count: int, format: str, dtype: str = 'fp32', block: int = 16, mantissa: int = 7, divide_by: int = 1) -> numpy.typing.NDArray[Any]:
    """
    The opposite; divide_by turns a sum into an average. bf16 comes as its bits in uint16.
    """

def kernel_names() -> list[str]:
    """What this machine can run, fastest first."""

def kernels_in_use() -> str:
    """One of them (NETFOLD_KERNELS overrides)."""

def time_codec(kernels: Sequence[str], size_bytes: int, repeat: int, pass_time_s: float = 0.0005, block: int = 16, mantissa: int = 7) -> list[dict[str, Any]]:
    """
    Seconds that each operation of each kernel table takes for `size_bytes` of floats, memcpy of the same floats and only reading them, `repeat` times in turn; the largest error where eight workers' floats were folded.
    """

FOLD_WORKERS: int = 8

class SwitchGroup:
    """A worker in a job: hands all-reduces to the switch and waits for them."""

    def __init__(self, switch: str, job: str, world: int, rank: int, *, secret: str = '', require_auth: bool = False, timeout_s: float = 30.0, connect_timeout_s: float = 30.0, window: int = 0, block: int = 16, mantissa: int = 7, faults: str = '', pcap: str = '', place: str = '', dscp: int = 0, interface: str = '', core: int = -1, hosted: bool = False) -> None:
        """
        Joins `job` at the switch `host:port` as `rank` of `world`; blocks until all are there, at most timeout_s,
        and gives up after connect_timeout_s if no switch answers there.
        Raises NetfoldError. secret: what the job's workers share. window: chunks in flight, 0 for the default.
        core: where the progress thread runs, -1 for anywhere. faults: seeded trouble for tests, such as
        'loss=0.01,duplicate=0.01,reorder=0.05,seed=7'. pcap: a capture file to write.
        place: where the switch is, for errors: "in rank 0's process".
        dscp: of this worker's packets, 0 to 63. interface: by which they leave this machine; '': the routing table's.
        hosted: the job has an AggregationObserver, wait for it too.
        """

    def lease(self) -> dict[str, Any]:
        """
        What the switch granted: job and epoch numbers, slots, payload_bytes, ...
        """

    def all_reduce(self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, average: bool = False, awaited: bool = False, block: int = 16, mantissa: int = 7, encoded: bool = False) -> int:
        """
        Hands `count` elements at address in_ptr over, the sum (or average) to be written to out_ptr; returns a
        ticket at once. The memory belongs to the client until the ticket is finished. awaited: next_completion leaves
        the ticket to wait. encoded: both addresses hold whole blocks of `wire`, which is bfp of this block and mantissa.
        """

    def reduce_scatter(self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, average: bool = False, awaited: bool = False) -> int:
        """
        Sums (or averages) world * count elements at in_ptr and writes this rank's part, the rank-th `count` of
        them, to out_ptr. The rest as all_reduce.
        """

    def collect(self, collective: str, in_ptr: int, out_ptr: int, count: int, dtype: str, root: int = 0, algorithm: str = '', awaited: bool = False) -> int:
        """
        An all-gather of every rank's `count` elements, or a broadcast of root's, as they lie in memory: the switch
        multiplies them. dtype, root: as of PeerGroup; algorithm is ignored. The rest as all_reduce.
        """

    def barrier(self, awaited: bool = False) -> int:
        """Its ticket is finished once every rank has come to the same barrier."""

    def wait(self, ticket: int, timeout_s: float = float('inf')) -> bool:
        """
        Blocks until the ticket's collective is done, at most timeout_s; says whether it is. Raises NetfoldError if
        it failed.
        """

    def next_completion(self, timeout_s: float) -> tuple[int, NetfoldError | None] | None:
        """
        The next finished (ticket, None or NetfoldError), or None after timeout_s.
        """

    def for_device(self, copied_ptr: int, over_ptr: int, number: int) -> None:
        """
        A device copies the tensor of the next collective here and back. The addresses of two uint32, or 0: the
        tensor may be read when the first is `number`. When the collective is over, the second becomes `number`, or
        number + 1 if it has failed. Both words must live until then.
        """

    def stats(self) -> dict[str, Any]:
        """Packets, bytes, retransmissions and the measured round trip so far."""

    def set_timeout(self, timeout_s: float) -> None:
        """
        How long a collective may make no progress, from now on. Engines of agents and of smart NICs keep theirs.
        """

    def close(self, reason: str = '') -> None:
        """
        Leaves; what is unfinished fails. A reason tells the other ranks that this one failed.
        """

class AggregationObserver:
    """
    The host of a job: told by the switch when its workers' tensors are folded. A switch of
    frames folds the workers' packets on their way to this host, which receives none of them.
    """

    def __init__(self, switch: str, job: str, world: int, *, secret: str = '', require_auth: bool = False, timeout_s: float = 30.0, connect_timeout_s: float = 30.0, block: int = 16, mantissa: int = 7) -> None:
        """
        Joins `job` of `world` workers as its host, before the last of them does; blocks until all are there, at
        most timeout_s. The other arguments are the workers' own (SwitchGroup). Raises NetfoldError.
        """

    def expect(self, count: int, wire: str = 'fp32') -> int:
        """
        The next tensor that the workers submit has `count` elements; returns a ticket at once.
        """

    def wait(self, ticket: int, timeout_s: float = float('inf')) -> bool:
        """
        Blocks until the switch says that the tensor is folded; raises NetfoldError once the job is over.
        """

    def stats(self) -> dict[str, Any]:
        """Questions asked, signals heard, foreign packets dropped."""

    def close(self) -> None:
        """Leaves; the job goes on. Idempotent."""

class Switch:
    """A folding switch in this process, on threads of its own."""

    def __init__(self, bind: str = '0.0.0.0:0', *, shards: int = 1, secret: str = '', require_auth: bool = False, jobs_max: int = 64, memory_max_bytes: int = 1073741824, heartbeat_s: float = 1.0, cores: Sequence[int] = [], parent: str = '') -> None:
        """
        Listens at `bind` (port 0: the kernel picks). shards: threads that fold, a power of two.
        parent: the address of the switch above, host:port; it has the same secret.
        """

    @property
    def address(self) -> str:
        """host:port of the control port"""

    def stats(self) -> dict[str, Any]:
        """Jobs, counters and drops by reason."""

    def close(self) -> None:
        """Tells the workers and stops; idempotent."""

class PeerGroup:
    """A rank among others that fold without a switch."""

    def __init__(self, rank: int, world: int, *, listen: str = '127.0.0.1:0', timeout_s: float = 30.0, shm: bool = True, tcp_streams: int = 1, secret: str = '', require_auth: bool = False, dscp: int = 0, interfaces: Sequence[str] = [], elastic: bool = False, core: int = -1, inline_progress: bool = False) -> None:
        """
        Listens at `listen` (port 0: the kernel picks). Make every rank's `address` known to all, then connect.
        core: where the progress thread runs, -1 for anywhere. shm: shared memory between ranks of one machine.
        inline_progress: no thread; wait and next_completion drive the all-reduces, for the lowest latency.
        tcp_streams: connections to each lower rank of another machine, so that paths share the bytes; 1 to 16, all
        interfaces together. interfaces: of this machine, that share the bytes to ranks of other machines by their
        rates; the routing table's if none. All ranks name as many, and the first reaches the others' first, and so on.
        secret: what all ranks must prove to know before any of them takes data from another; none if empty.
        require_auth: data and messages to ranks of other machines carry tags under keys that follow from the secret;
        alike on all ranks. Shared memory carries none.
        dscp: of this rank's packets, 0 to 63. elastic: the caller goes on without a rank that fails, so a machine that
        confirms nothing for much longer than is usual is given up before the timeout.
        """

    @property
    def address(self) -> str:
        """host:port where this rank listens"""

    def set_physical_order(self, order: Sequence[int]) -> None:
        """
        Where the ranks sit, for hdrm: see `order` of schedule(). Alike on all ranks, before connect.
        """

    def connect(self, addresses: Sequence[str]) -> None:
        """
        Connects to all ranks, whose addresses are given by rank; blocks, at most timeout_s. Raises NetfoldError.
        """

    def all_reduce(self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, average: bool = False, algorithm: str = 'ring', sub_nodes: int = 0, switches: int = 0, group: int = 0, between: str = 'ring', block: int = 16, mantissa: int = 7, awaited: bool = False, encoded: bool = False) -> int:
        """
        Hands `count` elements at address in_ptr over, the sum (or average) to be written to out_ptr; returns a
        ticket at once. The memory belongs to the group until the ticket is finished. Every rank hands over the
        same all-reduces in the same order. algorithm and its options: see schedule(). awaited: the caller waits
        for this ticket next, and does the work itself; no thread is woken for it, next_completion does not return it. encoded: both addresses hold whole blocks of `wire`, which is bfp; only of sums.
        """

    def reduce_scatter(self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, average: bool = False, algorithm: str = 'ring', sub_nodes: int = 0, switches: int = 0, block: int = 16, mantissa: int = 7, awaited: bool = False) -> int:
        """
        Sums (or averages) world * count elements at in_ptr and writes this rank's part, the rank-th `count` of
        them, to out_ptr; in_ptr is only read. The rest as all_reduce.
        """

    def all_gather(self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, algorithm: str = 'ring', sub_nodes: int = 0, switches: int = 0, block: int = 16, mantissa: int = 7, awaited: bool = False) -> int:
        """
        Writes every rank's `count` elements at in_ptr, one rank behind the other, to out_ptr. In place, in_ptr is
        this rank's part at out_ptr. A wire format that rounds rounds every rank's part alike, the own one too.
        """

    def broadcast(self, ptr: int, count: int, root: int, dtype: str, wire: str, algorithm: str = 'binomial', block: int = 16, mantissa: int = 7, awaited: bool = False) -> int:
        """
        Writes root's `count` elements to every rank's memory. algorithm: binomial for few bytes, ring for many.
        """

    def barrier(self, awaited: bool = False) -> int:
        """Its ticket is finished once every rank has come to the same barrier."""

    def wait(self, ticket: int, timeout_s: float = float('inf')) -> bool:
        """
        Blocks until the ticket's collective is done, at most timeout_s; says whether it is. Raises NetfoldError if
        it failed.
        """

    def next_completion(self, timeout_s: float) -> tuple[int, NetfoldError | None] | None:
        """
        The next finished (ticket, None or NetfoldError), or None after timeout_s.
        """

    def for_device(self, copied_ptr: int, over_ptr: int, number: int) -> None:
        """
        A device copies the tensor of the next collective here and back. The addresses of two uint32, or 0: the
        tensor may be read when the first is `number`. When the collective is over, the second becomes `number`, or
        number + 1 if it has failed. Both words must live until then.
        """

    def stats(self) -> dict[str, Any]:
        """
        Peers and bytes by kind of link, elements reduced, and the engine's CPU seconds (cpu_s).
        """

    def set_timeout(self, timeout_s: float) -> None:
        """
        How long a collective may make no progress, from now on. Engines of agents and of smart NICs keep theirs.
        """

    def close(self, reason: str = '') -> None:
        """
        Leaves; what is unfinished fails. A reason tells the other ranks that this one failed.
        """

    def collect(self, collective: str, in_ptr: int, out_ptr: int, count: int, dtype: str, operation: str = 'sum', average: bool = False, root: int = 0, algorithm: str = 'direct', sub_nodes: int = 0, switches: int = 0, wire: str = '', awaited: bool = False) -> int:
        """
        An all-reduce, reduce, reduce-scatter, all-gather or broadcast, of elements as they lie in memory
        unless `wire` names a format. dtype:
        fp64, fp32, fp16, bf16, int8 to int64, uint8 to uint64, bool, complex64 or complex128. operation: sum,
        product, min, max, band, bor or bxor. Only the root's out_ptr is written in a reduce. Returns a ticket.
        """

    def exchange(self, collective: str, in_ptr: int, out_ptr: int, dtype: str, sends: Sequence[int], receives: Sequence[int], root: int = 0, awaited: bool = False) -> int:
        """
        An all-to-all, gather or scatter. sends, receives: elements by rank. They lie one part behind the other, in
        the order of ranks, at in_ptr and at out_ptr, which do not overlap. Returns a ticket.
        """

    def send(self, ptr: int, size_bytes: int, to: int, tag: int = 0, awaited: bool = False) -> int:
        """
        Sends a message to another rank. Its ticket is finished once the memory may be used again. Messages do not
        wait for collectives, nor collectives for messages.
        """

    def receive(self, ptr: int, size_bytes: int, from_rank: int = -1, tag: int = 0, sender_ptr: int = 0, awaited: bool = False) -> int:
        """
        Receives a message of this size and tag, from a rank or (-1) from any. The sender's rank is written to the
        int32 at sender_ptr, unless that is 0.
        """

    def keep(self, ranks: Sequence[int]) -> None:
        """
        Before close: the connections to these ranks outlive this group, for another's adopt.
        """

    @property
    def kept(self) -> list[int]:
        """
        After keep and close: the ranks whose connections have not ended; none once another group has them.
        """

    def drop_kept(self) -> None:
        """Closes the connections that it keeps."""

    def adopt(self, old: PeerGroup, old_ranks: Sequence[int], group: str) -> None:
        """
        Before connect: goes on over connections that `old` keeps, and closes its others. old_ranks: for each rank
        of this group its rank in `old`, -1 where the two connect anew; both ranks of a pair must mean the same.
        group: a name of this group, alike on all ranks, that no earlier group of these ranks had.
        """

    @property
    def failure(self) -> NetfoldError | None:
        """Why the group has failed, also while nothing is submitted."""

class SplitGroup:
    """
    A rank that sums through switches and among the ranks at once (algorithm "split").
    """

    def __init__(self, rank: int, world: int, *, listen: str = '127.0.0.1:0', timeout_s: float = 30.0, shm: bool = True, tcp_streams: int = 1, secret: str = '', require_auth: bool = False, dscp: int = 0, interfaces: Sequence[str] = [], elastic: bool = False, switches: Sequence[str], job: str, core: int = -1, connect_timeout_s: float = 30.0, window: int = 0, block: int = 16, mantissa: int = 7, faults: str = '', pcap: str = '', place: str = '') -> None:
        """
        Listens at `listen`, as PeerGroup; connect() then joins `job` at each switch `host:port` too, as SwitchGroup. All
        ranks name the switches in the same order.
        Besides "split", all_reduce takes "in-network" and every algorithm of a PeerGroup. By "split" large
        reduce-scatters and all-gathers go through the switches where both are on their way. The other collectives run
        among the ranks. secret: of the ranks and of the job. require_auth: packets, and data between ranks, carry tags.
        interfaces: of this machine; each switch is joined once by
        each of them, and the rates that are measured decide about the shares. Ranks reach each other as with PeerGroup.
        """

    @property
    def switches(self) -> int:
        """How many."""

    def take_switch_news(self) -> list[tuple[str, str]]:
        """
        What has happened to switches since the last call: a name, and why that switch was lost, or '' if it is back.
        """

    @property
    def share(self) -> tuple[float, float, float]:
        """
        The switches' share of the last large tensor that did not measure, and on rank 0 how fast they take data together
        from a worker, and how fast a worker's link is, in bytes/s. 0: not known yet.
        """

    @property
    def address(self) -> str:
        """host:port where this rank listens"""

    def set_physical_order(self, order: Sequence[int]) -> None:
        """
        Where the ranks sit, for hdrm: see `order` of schedule(). Alike on all ranks, before connect.
        """

    def connect(self, addresses: Sequence[str]) -> None:
        """
        Connects to all ranks, whose addresses are given by rank; blocks, at most timeout_s. Raises NetfoldError.
        """

    def all_reduce(self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, average: bool = False, algorithm: str = 'ring', sub_nodes: int = 0, switches: int = 0, group: int = 0, between: str = 'ring', block: int = 16, mantissa: int = 7, awaited: bool = False, encoded: bool = False) -> int:
        """
        Hands `count` elements at address in_ptr over, the sum (or average) to be written to out_ptr; returns a
        ticket at once. The memory belongs to the group until the ticket is finished. Every rank hands over the
        same all-reduces in the same order. algorithm and its options: see schedule(). awaited: the caller waits
        for this ticket next, and does the work itself; no thread is woken for it, next_completion does not return it. encoded: both addresses hold whole blocks of `wire`, which is bfp; only of sums.
        """

    def reduce_scatter(self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, average: bool = False, algorithm: str = 'ring', sub_nodes: int = 0, switches: int = 0, block: int = 16, mantissa: int = 7, awaited: bool = False) -> int:
        """
        Sums (or averages) world * count elements at in_ptr and writes this rank's part, the rank-th `count` of
        them, to out_ptr; in_ptr is only read. The rest as all_reduce.
        """

    def all_gather(self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, algorithm: str = 'ring', sub_nodes: int = 0, switches: int = 0, block: int = 16, mantissa: int = 7, awaited: bool = False) -> int:
        """
        Writes every rank's `count` elements at in_ptr, one rank behind the other, to out_ptr. In place, in_ptr is
        this rank's part at out_ptr. A wire format that rounds rounds every rank's part alike, the own one too.
        """

    def broadcast(self, ptr: int, count: int, root: int, dtype: str, wire: str, algorithm: str = 'binomial', block: int = 16, mantissa: int = 7, awaited: bool = False) -> int:
        """
        Writes root's `count` elements to every rank's memory. algorithm: binomial for few bytes, ring for many.
        """

    def barrier(self, awaited: bool = False) -> int:
        """Its ticket is finished once every rank has come to the same barrier."""

    def wait(self, ticket: int, timeout_s: float = float('inf')) -> bool:
        """
        Blocks until the ticket's collective is done, at most timeout_s; says whether it is. Raises NetfoldError if
        it failed.
        """

    def next_completion(self, timeout_s: float) -> tuple[int, NetfoldError | None] | None:
        """
        The next finished (ticket, None or NetfoldError), or None after timeout_s.
        """

    def for_device(self, copied_ptr: int, over_ptr: int, number: int) -> None:
        """
        A device copies the tensor of the next collective here and back. The addresses of two uint32, or 0: the
        tensor may be read when the first is `number`. When the collective is over, the second becomes `number`, or
        number + 1 if it has failed. Both words must live until then.
        """

    def stats(self) -> dict[str, Any]:
        """
        Peers and bytes by kind of link, elements reduced, and the engine's CPU seconds (cpu_s).
        """

    def set_timeout(self, timeout_s: float) -> None:
        """
        How long a collective may make no progress, from now on. Engines of agents and of smart NICs keep theirs.
        """

    def close(self, reason: str = '') -> None:
        """
        Leaves; what is unfinished fails. A reason tells the other ranks that this one failed.
        """

class NicGroup:
    """A rank whose FP32 all-reduces by the ring go through a smart NIC."""

    def __init__(self, rank: int, world: int, *, listen: str = '127.0.0.1:0', timeout_s: float = 30.0, shm: bool = True, tcp_streams: int = 1, secret: str = '', require_auth: bool = False, dscp: int = 0, interfaces: Sequence[str] = [], elastic: bool = False, nic: str, core: int = -1) -> None:
        """
        Listens at `listen`, as PeerGroup, and takes the NIC: a PCI address that vfio-pci drives, or the path
        of a socket where another program is the NIC (vfio-user); after it perhaps ,bar=NUMBER and ,offset=NUMBER.
        {rank} stands for the rank. Other collectives, types and formats run among the ranks. Raises NetfoldError.
        """

    @property
    def address(self) -> str:
        """host:port where this rank listens"""

    def set_physical_order(self, order: Sequence[int]) -> None:
        """
        Where the ranks sit, for hdrm: see `order` of schedule(). Alike on all ranks, before connect.
        """

    def connect(self, addresses: Sequence[str]) -> None:
        """
        Connects to all ranks, whose addresses are given by rank; blocks, at most timeout_s. Raises NetfoldError.
        """

    def all_reduce(self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, average: bool = False, algorithm: str = 'ring', sub_nodes: int = 0, switches: int = 0, group: int = 0, between: str = 'ring', block: int = 16, mantissa: int = 7, awaited: bool = False, encoded: bool = False) -> int:
        """
        Hands `count` elements at address in_ptr over, the sum (or average) to be written to out_ptr; returns a
        ticket at once. The memory belongs to the group until the ticket is finished. Every rank hands over the
        same all-reduces in the same order. algorithm and its options: see schedule(). awaited: the caller waits
        for this ticket next, and does the work itself; no thread is woken for it, next_completion does not return it. encoded: both addresses hold whole blocks of `wire`, which is bfp; only of sums.
        """

    def reduce_scatter(self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, average: bool = False, algorithm: str = 'ring', sub_nodes: int = 0, switches: int = 0, block: int = 16, mantissa: int = 7, awaited: bool = False) -> int:
        """
        Sums (or averages) world * count elements at in_ptr and writes this rank's part, the rank-th `count` of
        them, to out_ptr; in_ptr is only read. The rest as all_reduce.
        """

    def all_gather(self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, algorithm: str = 'ring', sub_nodes: int = 0, switches: int = 0, block: int = 16, mantissa: int = 7, awaited: bool = False) -> int:
        """
        Writes every rank's `count` elements at in_ptr, one rank behind the other, to out_ptr. In place, in_ptr is
        this rank's part at out_ptr. A wire format that rounds rounds every rank's part alike, the own one too.
        """

    def broadcast(self, ptr: int, count: int, root: int, dtype: str, wire: str, algorithm: str = 'binomial', block: int = 16, mantissa: int = 7, awaited: bool = False) -> int:
        """
        Writes root's `count` elements to every rank's memory. algorithm: binomial for few bytes, ring for many.
        """

    def barrier(self, awaited: bool = False) -> int:
        """Its ticket is finished once every rank has come to the same barrier."""

    def wait(self, ticket: int, timeout_s: float = float('inf')) -> bool:
        """
        Blocks until the ticket's collective is done, at most timeout_s; says whether it is. Raises NetfoldError if
        it failed.
        """

    def next_completion(self, timeout_s: float) -> tuple[int, NetfoldError | None] | None:
        """
        The next finished (ticket, None or NetfoldError), or None after timeout_s.
        """

    def for_device(self, copied_ptr: int, over_ptr: int, number: int) -> None:
        """
        A device copies the tensor of the next collective here and back. The addresses of two uint32, or 0: the
        tensor may be read when the first is `number`. When the collective is over, the second becomes `number`, or
        number + 1 if it has failed. Both words must live until then.
        """

    def stats(self) -> dict[str, Any]:
        """
        Peers and bytes by kind of link, elements reduced, and the engine's CPU seconds (cpu_s).
        """

    def set_timeout(self, timeout_s: float) -> None:
        """
        How long a collective may make no progress, from now on. Engines of agents and of smart NICs keep theirs.
        """

    def close(self, reason: str = '') -> None:
        """
        Leaves; what is unfinished fails. A reason tells the other ranks that this one failed.
        """

def describe_nic(nic: str) -> tuple[int, int, int, bool, int, bool]:
    """
    Takes the NIC for a moment, resets it, and returns what it says of itself: lanes, block and mantissa of bfp,
    whether it has bfp, its Ethernet address (the first byte in the lowest bits; 0: none), and whether it has an
    interrupt. Raises NetfoldError.
    """

def check_nic_place(text: str) -> None:
    """
    Raises NetfoldError, with what to write, if the text does not name a NIC as NicGroup's `nic`.
    """

class AgentPeerGroup:
    """
    A PeerGroup whose engine is an agent's. All ranks must use agents, or none: an agent folds a large tensor in parts.
    """

    def __init__(self, rank: int, world: int, *, listen: str = '127.0.0.1:0', timeout_s: float = 30.0, shm: bool = True, tcp_streams: int = 1, secret: str = '', require_auth: bool = False, dscp: int = 0, interfaces: Sequence[str] = [], elastic: bool = False, agent: str) -> None:
        """
        agent: the socket of a running one, a path or @name. The rest as PeerGroup's.
        """

    @property
    def address(self) -> str:
        """host:port where this rank listens"""

    def set_physical_order(self, order: Sequence[int]) -> None:
        """
        Where the ranks sit, for hdrm: see `order` of schedule(). Alike on all ranks, before connect.
        """

    def connect(self, addresses: Sequence[str]) -> None:
        """
        Connects to all ranks, whose addresses are given by rank; blocks, at most timeout_s. Raises NetfoldError.
        """

    def all_reduce(self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, average: bool = False, algorithm: str = 'ring', sub_nodes: int = 0, switches: int = 0, group: int = 0, between: str = 'ring', block: int = 16, mantissa: int = 7, awaited: bool = False, encoded: bool = False) -> int:
        """
        Hands `count` elements at address in_ptr over, the sum (or average) to be written to out_ptr; returns a
        ticket at once. The memory belongs to the group until the ticket is finished. Every rank hands over the
        same all-reduces in the same order. algorithm and its options: see schedule(). awaited: the caller waits
        for this ticket next, and does the work itself; no thread is woken for it, next_completion does not return it. encoded: both addresses hold whole blocks of `wire`, which is bfp; only of sums.
        """

    def reduce_scatter(self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, average: bool = False, algorithm: str = 'ring', sub_nodes: int = 0, switches: int = 0, block: int = 16, mantissa: int = 7, awaited: bool = False) -> int:
        """
        Sums (or averages) world * count elements at in_ptr and writes this rank's part, the rank-th `count` of
        them, to out_ptr; in_ptr is only read. The rest as all_reduce.
        """

    def all_gather(self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, algorithm: str = 'ring', sub_nodes: int = 0, switches: int = 0, block: int = 16, mantissa: int = 7, awaited: bool = False) -> int:
        """
        Writes every rank's `count` elements at in_ptr, one rank behind the other, to out_ptr. In place, in_ptr is
        this rank's part at out_ptr. A wire format that rounds rounds every rank's part alike, the own one too.
        """

    def broadcast(self, ptr: int, count: int, root: int, dtype: str, wire: str, algorithm: str = 'binomial', block: int = 16, mantissa: int = 7, awaited: bool = False) -> int:
        """
        Writes root's `count` elements to every rank's memory. algorithm: binomial for few bytes, ring for many.
        """

    def barrier(self, awaited: bool = False) -> int:
        """Its ticket is finished once every rank has come to the same barrier."""

    def wait(self, ticket: int, timeout_s: float = float('inf')) -> bool:
        """
        Blocks until the ticket's collective is done, at most timeout_s; says whether it is. Raises NetfoldError if
        it failed.
        """

    def next_completion(self, timeout_s: float) -> tuple[int, NetfoldError | None] | None:
        """
        The next finished (ticket, None or NetfoldError), or None after timeout_s.
        """

    def for_device(self, copied_ptr: int, over_ptr: int, number: int) -> None:
        """
        A device copies the tensor of the next collective here and back. The addresses of two uint32, or 0: the
        tensor may be read when the first is `number`. When the collective is over, the second becomes `number`, or
        number + 1 if it has failed. Both words must live until then.
        """

    def stats(self) -> dict[str, Any]:
        """
        Peers and bytes by kind of link, elements reduced, and the engine's CPU seconds (cpu_s).
        """

    def set_timeout(self, timeout_s: float) -> None:
        """
        How long a collective may make no progress, from now on. Engines of agents and of smart NICs keep theirs.
        """

    def close(self, reason: str = '') -> None:
        """
        Leaves; what is unfinished fails. A reason tells the other ranks that this one failed.
        """

class AgentSwitchGroup:
    """A SwitchGroup that an agent runs."""

    def __init__(self, switch: str, job: str, world: int, rank: int, *, secret: str = '', require_auth: bool = False, timeout_s: float = 30.0, connect_timeout_s: float = 30.0, window: int = 0, block: int = 16, mantissa: int = 7, faults: str = '', pcap: str = '', place: str = '', dscp: int = 0, interface: str = '', agent: str) -> None:
        """
        agent: the socket of a running one, a path or @name. The rest as SwitchGroup's.
        """

    def lease(self) -> dict[str, Any]:
        """What the switch granted."""

    def all_reduce(self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, average: bool = False, awaited: bool = False, block: int = 16, mantissa: int = 7, encoded: bool = False) -> int:
        """
        Hands `count` elements at address in_ptr over, the sum (or average) to be written to out_ptr; returns a
        ticket at once. The memory belongs to the client until the ticket is finished. awaited: next_completion leaves
        the ticket to wait. encoded: both addresses hold whole blocks of `wire`, which is bfp of this block and mantissa.
        """

    def wait(self, ticket: int, timeout_s: float = float('inf')) -> bool:
        """
        Blocks until the ticket's collective is done, at most timeout_s; says whether it is. Raises NetfoldError if
        it failed.
        """

    def next_completion(self, timeout_s: float) -> tuple[int, NetfoldError | None] | None:
        """
        The next finished (ticket, None or NetfoldError), or None after timeout_s.
        """

    def for_device(self, copied_ptr: int, over_ptr: int, number: int) -> None:
        """
        A device copies the tensor of the next collective here and back. The addresses of two uint32, or 0: the
        tensor may be read when the first is `number`. When the collective is over, the second becomes `number`, or
        number + 1 if it has failed. Both words must live until then.
        """

    def stats(self) -> dict[str, Any]:
        """
        The engine's counters; cpu_s are the agent's CPU seconds for this worker.
        """

    def set_timeout(self, timeout_s: float) -> None:
        """
        How long a collective may make no progress, from now on. Engines of agents and of smart NICs keep theirs.
        """

    def close(self, reason: str = '') -> None:
        """
        Leaves; what is unfinished fails. A reason tells the other ranks that this one failed.
        """

def schedule(algorithm: str, world: int, rank: int, count: int, *, collective: str = 'all-reduce', root: int = 0, sub_nodes: int = 0, switches: int = 0, group: int = 0, between: str = 'ring', align: int = 1, order: Sequence[int] = []) -> list[list[tuple[str, int, int, int]]]:
    """
    What `rank` of `world` does to `count` elements: a list of steps, each a list of transfers
    (action, peer, offset, count), action 'send', 'fold' (receive and add) or 'store' (receive and keep),
    offset and count in elements, peer -1 for the switch. order: the rank at each position of hdrm's BiGraph, and
    then the rank that hands over to each, or -1 (none: rank order). Raises ValueError for what cannot be served.
    """

def rank_mapping(sub_nodes: int, switches: int) -> list[int]:
    """
    Ranks in physical order (the upper half's switches first, sub_nodes each) that give halving-doubling a link
    of its own for every connection on a BiGraph (eflops V-B). Both numbers must be powers of two.
    """

def usual_algorithm(size_bytes: int, world: int, share_memory: bool) -> str:
    """
    The algorithm to take for a tensor of so many bytes where nothing was measured.
    """

def sums_in_rank_order(algorithm: str, world: int, wire: str) -> bool:
    """
    Whether its all-reduces have the bits of the in-network fold, where elements travel in format `wire`.
    """

def algorithms() -> list[tuple[str, str]]:
    """Pairs of an algorithm's name and what it does."""

class FramePipeline:
    """
    A switch that folds frames, over ports in memory: raw Ethernet frames in and out, and time as it is told. Deterministic: the same frames at the same times give the same frames.
    """

    def __init__(self, ports: int, *, age_s: float = 10.0) -> None:
        """
        All ports fold, in fp32 where a message does not say. age_s: how long a contribution waits for the others.
        """

    def offer(self, port: int, frame: bytes, time_s: float = 0.0) -> list[tuple[int, bytes]]:
        """
        A frame (without FCS) comes in at a port; returns what goes out: (port, frame), by port.
        """

    def pump(self, time_s: float) -> list[tuple[int, bytes]]:
        """Time goes on though nothing comes."""

    def configure(self, ports: Sequence[int], *, is_float: bool = True, job: int = -1, uplink: int = -1) -> None:
        """
        Which ports fold, from the next epoch of `job` (-1: of all jobs without an exception) on. uplink: the port that leads to the switch above, of a leaf of a tree; -1: it is not a leaf.
        """

    @property
    def registers(self) -> tuple[int, int]:
        """(AGG_MODE, AGG_PORT_CFG)."""

    def set_registers(self, agg_mode: int, agg_port_cfg: int) -> None:
        """The same, written; NetfoldError if they contradict themselves."""

    def counts(self) -> dict[str, Any]:
        """Counters by name; drops as drop_<reason>."""

class FrameSwitch:
    """
    A switch that folds frames between interfaces of this machine (RoCE v1 and v2, PCIe over Ethernet), on a thread of its own; needs CAP_NET_RAW.
    """

    def __init__(self, interfaces: Sequence[str], *, ports: Sequence[int] = [], is_float: bool = True) -> None:
        """
        Port numbers are places in `interfaces`; those in `ports` fold (empty: all).
        """

    def configure(self, ports: Sequence[int], *, is_float: bool = True, job: int = -1, uplink: int = -1) -> None:
        """
        Which ports fold, from the next epoch of `job` (-1: of all jobs without an exception) on. uplink: the port that leads to the switch above, of a leaf of a tree; -1: it is not a leaf.
        """

    def counts(self) -> dict[str, Any]:
        """Counters by name."""

    def close(self) -> None:
        """Stops; idempotent."""

class RoceGroup:
    """A worker that folds over RoCE through a switch."""

    def __init__(self, device: str, rank: int, world: int, *, job: int = 1, epoch: int = 1, verbs: bool = False, timeout_s: float = 30.0, window: int = 128, first_psn: int | None = None, block: int = 16, mantissa: int = 7, faults: str = '', pcap: str = '', core: int = -1, version: int = 1, message_packets: int = 128, one_way: bool = False) -> None:
        """
        device: a network interface, or with verbs=True an RDMA device ('': the first). window: packets in flight, at most 512. version: of RoCE, 1 or 2 (which routers forward, and needs an IPv4 address). message_packets: of the longest message, 2 to 128, the same at all ranks; a small switch needs short ones. one_way: the switch has one-way messages, and so reduce-scatters, all-gathers, broadcasts and barriers, if all ranks say so.
        epoch 0: rank 0's clock gives the next one. first_psn None: drawn. Raises NetfoldError.
        """

    @property
    def address(self) -> str:
        """What the others must know of this worker, as text."""

    def connect(self, addresses: Sequence[str]) -> None:
        """
        The endpoint texts of all ranks, in rank order; called once, before the first all_reduce.
        """

    @property
    def is_one_way(self) -> bool:
        """
        After connect: whether reduce_scatter, collect and barrier are served. It is alike on all ranks.
        """

    def all_reduce(self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, average: bool = False, awaited: bool = False, block: int = 16, mantissa: int = 7, encoded: bool = False) -> int:
        """
        Hands `count` elements at address in_ptr over, the sum (or average) to be written to out_ptr; returns a
        ticket at once. The memory belongs to the client until the ticket is finished. awaited: next_completion leaves
        the ticket to wait. encoded: both addresses hold whole blocks of `wire`, which is bfp of this block and mantissa.
        """

    def reduce_scatter(self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, average: bool = False, awaited: bool = False) -> int:
        """
        Sums (or averages) world * count elements at in_ptr and writes this rank's part, the rank-th `count` of
        them, to out_ptr. The rest as all_reduce.
        """

    def collect(self, collective: str, in_ptr: int, out_ptr: int, count: int, dtype: str, root: int = 0, algorithm: str = '', awaited: bool = False) -> int:
        """
        An all-gather of every rank's `count` elements, or a broadcast of root's, as they lie in memory: the switch
        multiplies them. dtype, root: as of PeerGroup; algorithm is ignored. The rest as all_reduce.
        """

    def barrier(self, awaited: bool = False) -> int:
        """Its ticket is finished once every rank has come to the same barrier."""

    def wait(self, ticket: int, timeout_s: float = float('inf')) -> bool:
        """
        Blocks until the ticket's collective is done, at most timeout_s; says whether it is. Raises NetfoldError if
        it failed.
        """

    def next_completion(self, timeout_s: float) -> tuple[int, NetfoldError | None] | None:
        """
        The next finished (ticket, None or NetfoldError), or None after timeout_s.
        """

    def for_device(self, copied_ptr: int, over_ptr: int, number: int) -> None:
        """
        A device copies the tensor of the next collective here and back. The addresses of two uint32, or 0: the
        tensor may be read when the first is `number`. When the collective is over, the second becomes `number`, or
        number + 1 if it has failed. Both words must live until then.
        """

    def stats(self) -> dict[str, Any]:
        """Packets, retransmissions and reasons, of this worker."""

    def set_timeout(self, timeout_s: float) -> None:
        """
        How long a collective may make no progress, from now on. Engines of agents and of smart NICs keep theirs.
        """

    def close(self, reason: str = '') -> None:
        """
        Leaves; what is unfinished fails. A reason tells the other ranks that this one failed.
        """

def parse_roce_place(text: str, rank: int = 0) -> tuple[str, bool, int, int, int, bool]:
    """
    (device, verbs, version, job, packets of a message, one-way) of text such as eth1,version=1,job=9.
    Raises NetfoldError.
    """

class Topology:
    """
    Nodes (hosts, switches, others that forward), links of one direction, and resources: all that
    has a capacity. Hosts are numbered as they are added; nodes, links and resources too.
    """

    def __init__(self) -> None: ...

    def add_host(self, name: str) -> int:
        """Add where a worker may run; returns its node."""

    def add_switch(self, name: str) -> int:
        """Returns its node."""

    def add_other(self, name: str) -> int:
        """
        Add another node that forwards: a PCIe switch, a root port, a socket. Returns its node.
        """

    def add_resource(self, capacity_bit_s: float, name: str) -> int:
        """Add what several links share; returns its number."""

    def add_link(self, from_node: int, to_node: int, *, capacity_bit_s: float = 0.0, latency_s: float = 0.0, cost: float = 1.0, resource: int | None = None) -> int:
        """
        Add a link, with a resource of its own or on one that is shared. Routes have the least sum of costs.
        Returns its number.
        """

    def add_cable(self, one: int, other: int, *, capacity_bit_s: float, latency_s: float = 0.0) -> None:
        """Add a link each way."""

    def set_fold_rate(self, node: int, bit_s: float) -> None:
        """
        Bits of operands a second that a node folds: a host all it folds, a switch all in-network folds.
        """

    def set_path(self, from_host: int, to_host: int, links: Sequence[int]) -> None:
        """Say which links lead from one host to another, whatever costs say."""

    def check(self) -> None:
        """Raises ValueError naming what is wrong."""

    def path(self, from_host: int, to_host: int, *, spread: str = 'hash', seed: int = 0, flow: int = 0) -> list[int]:
        """
        The links from one host to another. Raises ValueError where there is no way.
        """

    def resource_name(self, resource: int) -> str: ...

    @property
    def hosts(self) -> numpy.typing.NDArray[Any]:
        """Their nodes."""

    @property
    def links(self) -> dict[str, Any]:
        """Arrays by link: from, to, resource, latency_s, cost."""

    @property
    def capacity_bit_s(self) -> numpy.typing.NDArray[Any]:
        """By resource."""

    @property
    def nodes(self) -> list[tuple[str, str]]:
        """Kind (host, switch, other) and name, by node."""

    @staticmethod
    def bigraph(sub_nodes: int, switches: int, *, rate_bit_s: float, latency_s: float = 0.0) -> Topology: ...

    @staticmethod
    def fat_tree(sub_nodes: int, switches: int, *, rate_bit_s: float, latency_s: float = 0.0) -> Topology:
        """The switches and cables of a BiGraph, all hosts at the lower half."""

    @staticmethod
    def leaf_spine(leaves: int, spines: int, hosts_per_leaf: int, *, rate_bit_s: float, latency_s: float = 0.0) -> Topology: ...

    @staticmethod
    def torus(rows: int, columns: int, hosts_per_switch: int = 1, *, rate_bit_s: float, latency_s: float = 0.0) -> Topology: ...

    @staticmethod
    def dragonfly(groups: int, routers: int, hosts_per_router: int = 1, *, rate_bit_s: float, latency_s: float = 0.0) -> Topology: ...

    @staticmethod
    def star(hosts: int, *, rate_bit_s: float, latency_s: float = 0.0) -> Topology: ...

def max_min(capacity_bit_s: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], flows: Sequence[Sequence[int]]) -> numpy.typing.NDArray[Any]:
    """
    Max-min fair rates in bit/s of flows, each a list of the resources that it takes (one named twice is
    taken twice). Plain and slow: what the simulator is tested against.
    """

def simulate_flows(capacity_bit_s: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], size_bits: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], path_first: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], path: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], *, latency_s: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, delay_s: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, needs: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu', writable=False)] | None = None) -> dict[str, Any]:
    """
    Flows that share resources by max-min fairness. Flow i takes path[path_first[i]:path_first[i + 1]] (int32
    arrays). It starts `delay_s` after all flows that it needs have ended (needs: int32 pairs of a flow and
    an earlier one), and its first bit takes `latency_s`. Returns time_s, start_s, end_s, bits_by_resource.
    """

def simulate(topology: Topology, algorithm: str, count: int, *, world: int | None = None, element_bits: float = 32.0, start: str = 'runtime', step_latency_s: float = 0.0, piece_count: int = 16384, hosts: Sequence[int] = [], spread: str = 'hash', rehash: bool = False, seed: int = 0, fold_root: int | None = None, collective: str = 'all-reduce', root: int = 0, sub_nodes: int = 0, switches: int = 0, order: Sequence[int] = [], group: int = 0, between: str = 'ring', align: int = 1, symmetry: bool = True, seeds: Sequence[int] = [], transfers: bool = False) -> dict[str, Any]:
    """
    A collective of `count` elements on a topology, by the runtime's own schedules. hosts: the host of each rank
    (none: rank r on host r). start: when a transfer may start: lock-step, own-receive, rendezvous, pieces (of
    piece_count elements), or runtime: as this project's runtime does it. step_latency_s: before each transfer.
    spread: where routes are equally short, hash chooses (seed; rehash: anew for each transfer) or destination.
    symmetry: simulate steps that are alike once, where that is exact; `kinds` says how many there were.
    seeds: simulate with one after the other, and give time_s_by_seed; the rest is of the last.
    element_bits: of an element on the wire, headers and all. fold_root: the node where an in-network fold ends.
    Returns time_s, bits_by_resource and, if asked for, transfers: arrays sender, receiver, step, size_bits,
    is_folded, start_s, end_s, and path_first, path: transfer i took the resources path[path_first[i]:path_first[i
    + 1]]. Raises ValueError for what cannot be.
    """

class Workload:
    """Transfers between ranks, and what each needs before it starts."""

    @staticmethod
    def collective(algorithm: str, world: int, count: int, *, element_bits: float = 32.0, start: str = 'runtime', step_latency_s: float = 0.0, piece_count: int = 16384, sub_nodes: int = 0, switches: int = 0, order: Sequence[int] = [], group: int = 0, between: str = 'ring') -> Workload:
        """An all-reduce of `count` elements; the words are those of `simulate`."""

    @staticmethod
    def flows(flows: Sequence[tuple[int, int]], size_bytes: float) -> Workload:
        """Pairs of sender and receiver that all start at once."""

    @staticmethod
    def goal(text: str) -> Workload:
        """
        From GOAL text, the input of LogGOPSim. Raises ValueError naming the line.
        """

    @property
    def tasks(self) -> int: ...

def simulate_workload(topology: Topology, workload: Workload, *, hosts: Sequence[int] = [], spread: str = 'hash', rehash: bool = False, seed: int = 0) -> dict[str, Any]:
    """Any workload as flows. Returns time_s, bits_by_resource, transfers."""

def simulate_packets(topology: Topology, workload: Workload, *, hosts: Sequence[int] = [], spread: str = 'hash', rehash: bool = False, seed: int = 0, packet_bytes: float = 4096.0, cut_through: bool = False, fair_queues: bool = True, pause_bytes: float = 100000.0, resume_bytes: float = 80000.0, priorities: str = 'one', priority_count: int = 2, slots: int = 256) -> dict[str, Any]:
    """
    The same as packets, with buffers that pause links (PFC). priorities: one for all, by the half of a
    BiGraph that the sender is in, or one more at each cable between switches (of priority_count). Returns time_s, packets,
    pauses, buffer_max_bytes, transfers (end_s is NaN for those that never ended), is_deadlocked and waiting:
    a circle of buffers, each with a flow whose packets wait there for the next.
    """

def check_deadlock(topology: Topology, *, spread: str = 'hash', priorities: str = 'one', priority_count: int = 2, flows: Sequence[tuple[int, int]] = []) -> dict[str, Any]:
    """
    Whether buffers may wait for each other in a circle: by all routes between all hosts, or of `flows`
    (pairs). Returns is_free, channels, dependencies and, if they form one, a cycle.
    """
