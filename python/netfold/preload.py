"""Preloads libnetfold-mpi.so before an MPI program's own library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def launch(
    command: Sequence[str], library: str, environment: Mapping[str, str], is_open_mpi: bool
) -> tuple[list[str], dict[str, str]]:
    """The launcher's command and environment that make every rank load the library first. Open MPI's launcher passes
    only named variables to ranks on other machines, and does not need the library itself. Other launchers pass the
    whole environment."""
    loads = ":".join(filter(None, (library, environment.get("LD_PRELOAD", ""))))
    if not is_open_mpi:
        return list(command), {**environment, "LD_PRELOAD": loads}
    settings = sorted(name for name in environment if name.startswith("NETFOLD_"))
    exports = [word for name in (f"LD_PRELOAD={loads}", *settings) for word in ("-x", name)]
    return [command[0], *exports, *command[1:]], dict(environment)
