"""`netfold bench allreduce`: Netfold and its peers on this machine, over loopback."""

from __future__ import annotations

from typing import Annotated

import typer

from netfold.lab.guard import sentences

ALGORITHM_HELP = "Ours: in-network, ring, ... or auto; several, with commas; none: the peers alone."


def register(app: typer.Typer) -> None:
    """Add the command to `netfold bench`."""

    @app.command("allreduce")
    def allreduce(
        ranks: Annotated[int, typer.Option("--ranks", "--workers", help="Processes that fold together.")] = 8,
        size_bytes: Annotated[str, typer.Option(help="Bytes of FP32 gradients; several, with commas.")] = "16777216",
        algorithm: Annotated[str, typer.Option(help=ALGORITHM_HELP)] = "in-network",
        bigraph: Annotated[str, typer.Option(help="hdrm: sub-nodes x switches, as 4x8.")] = "",
        group: Annotated[int, typer.Option(min=0, help="hierarchical: ranks of one machine.")] = 0,
        engine: Annotated[str, typer.Option(help="Of host algorithms: caller, thread or agent.")] = "thread",
        wire: Annotated[str, typer.Option("--format", help="fp32, bfp, fp16, bf16 or int32.")] = "fp32",
        against: Annotated[str, typer.Option(help="Peers in the same run: gloo,openmpi.")] = "gloo,openmpi",
        repeat: Annotated[int, typer.Option(help="Timed repetitions of each, after one warm-up.")] = 5,
        timeout_s: Annotated[float, typer.Option(help="The longest any step may take, in seconds.")] = 60.0,
        seed: Annotated[int, typer.Option(help="Of the gradients.")] = 1,
        json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Measure an all-reduce between processes of this machine, ours and the peers', interleaved in one run."""
        from netfold.bench import comparison
        from netfold.bench.screen import progress_bar, show

        with sentences():
            if ranks < 1:
                raise comparison.UsageError(f"--ranks is at least 1, not {ranks}")
            plan = comparison.Plan(
                comparison.sizes_of(size_bytes),
                algorithm,
                wire,
                comparison.peers_of(against),
                repeat,
                timeout_s,
                seed,
                bigraph=comparison.bigraph_of(bigraph),
                group=group,
                engine=engine,
            )
            plan.check(ranks)
            with progress_bar(plan.steps()) as progress:
                entries = comparison.locally(ranks, plan, progress)
            show(
                "bench allreduce",
                f"{ranks} ranks over loopback",
                {"workers": ranks, **plan.parameters()},
                entries,
                json,
            )
