"""`netfold lab`: emulated clusters on this machine."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from netfold import namespace_rights
from netfold.algorithms import AUTO, IN_NETWORK, with_switch
from netfold_lab.errors import LabError, UsageError
from netfold_lab.guard import sentences
from netfold_lab.lab.cluster import Lab
from netfold_lab.lab.spec import DPDK, SOCKETS, STAR, Faults, spec_of
from netfold_lab.outputs import output
from netfold_lab.sizes import by_name, sizes_of

LONG_S = 60  # a run for which a user waits

lab_app = typer.Typer(no_args_is_help=True, help="Emulate clusters on this machine: namespaces and shaped links.")

Workers = Annotated[
    int | None,
    typer.Option(help="Workers, each in a namespace of its own (default: 8, or the number that --shape has)."),
]
Fabric = Annotated[
    str, typer.Option(help="star: one bridge. bigraph, fat-tree: every switch a router, every cable a shaped link.")
]
Shape = Annotated[str, typer.Option(help="Shape of a bigraph or fat-tree: sub-nodes x switches, as 4x8.")]
Rate = Annotated[
    float | None,
    typer.Option(
        "--rate-mbit-s", help="Rate of each link, both ways; 0: not shaped (default: 200 on a star, else 10)."
    ),
]
SwitchRate = Annotated[
    float | None,
    typer.Option(
        "--switch-rate-mbit-s",
        help="Rate of the link of the switch's machine; 0: not shaped, as a machine with a port for each worker "
        "(default: that of a worker's link).",
    ),
]
SwitchKind = Annotated[
    str,
    typer.Option(
        "--switch",
        help="On a star: sockets (a switch program beside a bridge) or dpdk (the switch program is the bridge).",
    ),
]
Switches = Annotated[
    int, typer.Option(help="Machines with a switch beside the bridge; `auto` divides tensors between all of them.")
]
Leaves = Annotated[
    int,
    typer.Option(
        help="On a star: switches with a block of the workers each, below one switch, each with an uplink like a "
        "worker's link; 0: no tree."
    ),
]
Mtu = Annotated[int, typer.Option(help="MTU of every link in bytes.")]
Burst = Annotated[
    int | None,
    typer.Option("--burst-bytes", help="Largest burst of a link (default: 131072 on a star, else 16384)."),
]
Latency = Annotated[
    float | None,
    typer.Option(
        "--latency-ms", help="Longest time that a packet may queue at a link (default: 20 on a star, else 1000)."
    ),
]
Loss = Annotated[float, typer.Option(help="Fraction of the packets lost, each way.")]
Duplicate = Annotated[float, typer.Option(help="Fraction of the packets duplicated, each way.")]
Reorder = Annotated[float, typer.Option(help="Fraction of the packets reordered, each way.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def register(app: typer.Typer) -> None:
    """Add `lab` to the program."""
    app.add_typer(lab_app, name="lab")


def own_arguments() -> list[str]:
    """The arguments after `lab` on the command line."""
    words = sys.argv[1:]
    return words[words.index("lab") + 1 :] if "lab" in words else words


@lab_app.command()
def up(
    workers: Workers = None,
    fabric: Fabric = STAR,
    shape: Shape = "",
    rate_mbit_s: Rate = None,
    switch_rate_mbit_s: SwitchRate = None,
    switch: SwitchKind = SOCKETS,
    switches: Switches = 1,
    leaves: Leaves = 0,
    mtu: Mtu = 1500,
    burst_bytes: Burst = None,
    latency_ms: Latency = None,
    loss: Loss = 0.0,
    duplicate: Duplicate = 0.0,
    reorder: Reorder = 0.0,
    hold: Annotated[bool, typer.Option("--hold", help="Wait, and remove the lab when this command ends.")] = False,
    lab: Annotated[str, typer.Option(hidden=True)] = "",
    json: Json = False,
) -> None:
    """Build a lab that stays until `netfold lab down`."""
    from netfold_lab.lab import kept, names, state, userns

    with sentences():
        faults = Faults(loss, duplicate, reorder)
        more: dict[str, Any] = {
            "switch_rate_mbit_s": switch_rate_mbit_s,
            "mtu": mtu,
            "faults": faults,
            "switch": switch,
            "switches": switches,
            "leaves": leaves,
        }
        spec = spec_of(fabric, shape, workers, rate_mbit_s, burst_bytes, latency_ms, **more)
        lab_id = lab or names.new_lab_id()
        if not names.LAB_ID.match(lab_id):
            raise UsageError(f"{lab_id!r} is not a lab's ID; an ID looks like nf12ab34")
        inside = not namespace_rights.lacking()
        if not inside and hold:
            userns.enter(own_arguments())
        if not lab:
            kept.sweep()
        if not inside:
            kept.start_held(lab_id, [word for word in own_arguments()[1:] if word != "--json"])
        elif hold:
            with Lab(spec, lab_id, keep=True, held=True):
                describe(lab_id, asdict(spec), json)
                signal.pause()
        else:
            built = Lab(spec, lab_id, keep=True)
            try:
                built.up()
            except BaseException:
                built.down()
                raise
        if not hold:
            describe(lab_id, state.known(lab_id).parameters, json)


def describe(lab_id: str, parameters: dict, as_json: bool) -> None:
    """Print the lab's nodes and how to use them."""
    from netfold.json_output import envelope, print_json
    from netfold_lab.lab import names, state

    known = state.known(lab_id)
    nodes = known.addresses
    topology = state.directory(lab_id) / "topology.yaml"
    files = {"topology": str(topology)} if topology.exists() else {}
    if as_json:
        told = {"lab": lab_id, "addresses": nodes, "interface": names.INTERFACE, **files}
        print_json(envelope("lab up", parameters, [told]))
        return
    boxes = [address for node, address in nodes.items() if node.startswith("switch")]
    box = f", and {'the switch' if len(boxes) == 1 else 'switches'} at {', '.join(boxes)}" if boxes else ""
    print(f"lab {lab_id}: {known.workers} workers, {nodes['w0']} and up{box}")
    if files:
        print(f"topology file:  NETFOLD_TOPOLOGY={topology}")
    print(f"run on a node:  netfold lab exec --lab {lab_id} w0 -- COMMAND")
    print(f"remove the lab: netfold lab down {lab_id}", flush=True)


@lab_app.command(name="exec")
def execute(
    node: Annotated[str, typer.Argument(help="w0, w1, ..., switch, switch1, ...")],
    command: Annotated[list[str], typer.Argument(help="Command to run there; write -- before it.")],
    lab: Annotated[str, typer.Option(help="ID of the lab, if there are several.")] = "",
) -> None:
    """Run a program on a node of a lab that is up."""
    from netfold_lab.lab import kept

    with sentences():
        words = [*kept.node_command(kept.choose(lab), node), *command]
        os.execvp(words[0], words)


@lab_app.command()
def down(
    lab: Annotated[
        str, typer.Argument(help="ID of the lab; default: all labs that are up, and the remains of crashed ones.")
    ] = "",
    all_labs: Annotated[bool, typer.Option("--all", help="Remove every lab, even if `lab run` uses it.")] = False,
    json: Json = False,
) -> None:
    """Remove labs: their processes, namespaces, links and files."""
    from netfold.json_output import envelope, print_json
    from netfold_lab.lab import kept, state

    with sentences():
        if lab:
            doomed = [kept.choose(lab)]
            if doomed[0] not in kept.everything():
                raise LabError(f"there is no lab {lab}; labs: {', '.join(kept.everything()) or 'none'}")
        elif all_labs:
            doomed = kept.everything()
        else:
            doomed = [one for one in state.known_labs() if kept.is_left_over(one) or state.known(one).keep]
        for one in doomed:
            kept.take_down(one)
        if json:
            print_json(envelope("lab down", {"lab": lab or None, "all": all_labs}, [{"lab": one} for one in doomed]))
        else:
            print(f"removed: {', '.join(doomed)}" if doomed else "nothing to remove")


@lab_app.command()
def run(
    workers: Workers = None,
    fabric: Fabric = STAR,
    shape: Shape = "",
    placement: Annotated[
        str, typer.Option(help="block: neighbouring ranks on neighbouring workers. shuffled: random places, by --seed.")
    ] = "block",
    rate_mbit_s: Rate = None,
    size_bytes: Annotated[
        str, typer.Option(help="Size of the fp32 gradients, such as 16MiB; several with commas.")
    ] = "16777216",
    algorithm: Annotated[
        str | None,
        typer.Option(
            help="Netfold's algorithms: in-network, ring, ... or auto (with a switch: split); several with commas. "
            "`none` measures only the peers. Default: auto,in-network on a star (in-network with --switch dpdk or "
            "faults by netfold), else hdrm,halving-doubling,ring."
        ),
    ] = None,
    bigraph: Annotated[str, typer.Option(help="hdrm on a star: sub-nodes x switches, such as 4x8.")] = "",
    group: Annotated[int, typer.Option(min=0, help="hierarchical: number of workers per machine.")] = 0,
    wire: Annotated[str, typer.Option("--format", help="fp32, bfp, fp16, bf16 or int32.")] = "fp32",
    against: Annotated[
        str | None,
        typer.Option(
            help="Peers on the same links in the same run, or none (default: gloo,openmpi on a star, else none)."
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(help="Timed repetitions of each, after one warm-up.")] = 5,
    loss: Loss = 0.0,
    duplicate: Duplicate = 0.0,
    reorder: Reorder = 0.0,
    faults_by: Annotated[
        str,
        typer.Option(
            help="Source of faults. netfold: Netfold's workers, repeatable by --seed. kernel: the links, for all."
        ),
    ] = "netfold",
    seed: Annotated[int, typer.Option(help="Seed of the gradients, and of faults by netfold.")] = 1,
    mtu: Mtu = 1500,
    switch_rate_mbit_s: SwitchRate = None,
    switch: SwitchKind = SOCKETS,
    switches: Switches = 1,
    leaves: Leaves = 0,
    burst_bytes: Burst = None,
    latency_ms: Latency = None,
    timeout_s: Annotated[float, typer.Option(help="Longest time for any step, in seconds.")] = 60.0,
    sweep_workers: Annotated[str, typer.Option(help="Numbers of workers to measure with, such as 2..8.")] = "",
    model_sizes: Annotated[
        bool, typer.Option("--model-sizes", help="Measure the gradient sizes of six models.")
    ] = False,
    scale: Annotated[float, typer.Option(help="With --model-sizes: scale the sizes by this factor.")] = 1.0,
    out: Annotated[
        Path | None,
        output("Draw the times to this file: .png or .html; for a routed fabric .png or .svg."),
    ] = None,
    links_out: Annotated[
        Path | None,
        output("bigraph: draw the bytes of each link to this file (.png, .svg)."),
    ] = None,
    json: Json = False,
) -> None:
    """Build a lab, measure all-reduces of Netfold and its peers in it, and remove it."""
    from netfold_lab.bench import comparison, fabric_plots, links, models, plots, sweep
    from netfold_lab.bench.screen import progress_bar, show
    from netfold_lab.lab import kept, state, userns

    with sentences():
        sizes = _sizes(size_bytes, model_sizes, scale)
        is_star = fabric == STAR
        in_network_only = switch == DPDK or leaves > 0 or (faults_by == "netfold" and any((loss, duplicate, reorder)))
        on_star = IN_NETWORK if in_network_only else f"{AUTO},{IN_NETWORK}"
        algorithm = algorithm or (on_star if is_star else "hdrm,halving-doubling,ring")
        if is_star and switch == SOCKETS:
            algorithm = with_switch(algorithm)
        against = ("gloo,openmpi" if is_star else "") if against is None else against
        _check_plots(out, links_out, is_star, bool(against) and algorithm != "none")
        faults = Faults(loss, duplicate, reorder)
        counts = sweep.counts_of(sweep_workers) if sweep_workers else [workers]
        more: dict[str, Any] = {"switch_rate_mbit_s": switch_rate_mbit_s, "mtu": mtu, "switch": switch}
        more |= {"switches": switches, "leaves": leaves}
        labs = [spec_of(fabric, shape, n, rate_mbit_s, burst_bytes, latency_ms, **more) for n in counts]
        plan = comparison.ComparisonSettings(
            sizes,
            algorithm,
            wire,
            comparison.peers_of(against),
            repeat,
            timeout_s,
            seed,
            faults,
            faults_by,
            bigraph=comparison.bigraph_of(bigraph) if is_star else labs[0].shape,
            group=group,
            placement=placement,
        )
        for spec in labs:
            plan.check(spec.workers)
        if leaves and plan.is_split():
            raise UsageError("--leaves measures --algorithm in-network, and algorithms without a switch; not auto")
        if not is_star and (faults or plan.is_in_network()):
            raise UsageError("--algorithm in-network and faults need --fabric star")
        surveys = len(links.surveyed(labs[0], plan)) if links_out else 0
        if namespace_rights.lacking():
            kept.sweep()
            userns.enter(own_arguments())
        if not state.is_inside():
            kept.sweep()
        if needed_s := sum(plan.link_seconds(spec.workers, spec.rate_mbit_s) for spec in labs if spec.rate_mbit_s):
            _tell_long(needed_s)
        entries = []
        with progress_bar(plan.steps() * len(labs) + surveys) as progress:
            for spec in labs:
                entries += comparison.in_lab(spec, plan, progress)
            uses = links.survey(labs[0], plan, progress) if links_out else []
        parameters = {**asdict(labs[0]), **plan.parameters(), "scale": scale}
        if sweep_workers:
            parameters["workers"] = counts
        entries = links.with_links(models.beside_the_paper(entries), uses)
        title = f"all-reduce at {labs[0].links_text()}" + ("" if is_star else f", ranks {placement}")
        show("lab run", title, parameters, entries, json)
        if out:
            plots.draw(entries, out) if is_star else fabric_plots.draw_times(entries, title, out)
        if links_out and (wiring := labs[0].wiring()) is not None:
            fabric_plots.draw_links(uses, wiring, links_out)


def _tell_long(needed_s: float) -> None:
    if needed_s >= LONG_S:
        typer.echo(f"netfold: the links need at least {needed_s / 60:.0f} min; a smaller --size-bytes less", err=True)


def _sizes(size_bytes: str, model_sizes: bool, scale: float) -> dict[str, int]:
    from netfold_lab.bench import models

    if not model_sizes:
        return by_name(sizes_of(size_bytes))
    if not 0 < scale <= 1:
        raise UsageError(f"--scale must be above 0 and at most 1, not {scale}")
    return {model: models.size_bytes(model, scale) for model in models.MODEL_MIB}


def _check_plots(out: Path | None, links_out: Path | None, is_star: bool, has_peer: bool) -> None:
    from netfold_lab.bench import fabric_plots, plots

    for option, path, suffixes in (
        ("--out", out, plots.SUFFIXES if is_star else fabric_plots.SUFFIXES),
        ("--links-out", links_out, fabric_plots.SUFFIXES),
    ):
        if path and path.suffix not in suffixes:
            raise UsageError(f"{option} must end in {' or '.join(suffixes)}, not {path.suffix or 'nothing'}")
    if out and is_star and not has_peer:
        raise UsageError("--out draws the speed-up over a peer: it needs --algorithm in-network and a peer")


if __name__ == "__main__":
    lab_app()
