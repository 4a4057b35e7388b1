"""The command of each machine: the user's, with its place among the machines."""

from __future__ import annotations

from pathlib import PurePath

TORCHRUN = "torchrun"
RENDEZVOUS = (
    "--nnodes",
    "--node-rank",
    "--node_rank",
    "--master-addr",
    "--master_addr",
    "--master-port",
    "--master_port",
)
OWN_RENDEZVOUS = ("--rdzv-endpoint", "--rdzv_endpoint", "--rdzv-backend", "--rdzv_backend", "--standalone")


def is_torchrun(command: list[str]) -> bool:
    """Whether the command starts ranks by torchrun."""
    return _options_at(command) is not None


def _options_at(command: list[str]) -> int | None:
    """Where torchrun's options begin."""
    for at, word in enumerate(command):
        if PurePath(word).name == TORCHRUN:
            return at + 1
        if word == "torch.distributed.run" and command[at - 1] == "-m":
            return at + 1
    return None


def refusal(command: list[str]) -> str:
    """Why the command cannot be placed on several machines; "" if it can."""
    at = _options_at(command)
    given = [] if at is None else [word.partition("=")[0] for word in command[at:]]
    wrong = [word for word in given if word in (*RENDEZVOUS, *OWN_RENDEZVOUS)]
    return f"leave out {', '.join(wrong)}: netfold up says them to torchrun" if wrong else ""


def placed(command: list[str], number: int, machines: int, master: str, port: int) -> tuple[list[str], dict[str, str]]:
    """The command and the variables of one machine. torchrun gets options; any other program is one rank a machine,
    with torch's variables."""
    at = _options_at(command)
    if at is None:
        return command, {
            "RANK": str(number),
            "WORLD_SIZE": str(machines),
            "LOCAL_RANK": "0",
            "MASTER_ADDR": master,
            "MASTER_PORT": str(port),
        }
    options = [
        "--nnodes",
        str(machines),
        "--node-rank",
        str(number),
        "--master-addr",
        master,
        "--master-port",
        str(port),
    ]
    return [*command[:at], *options, *command[at:]], {}
