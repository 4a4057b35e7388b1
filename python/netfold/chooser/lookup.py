"""The table for a group, read by the rank that decides. A wrong table causes a warning, never an error: the built-in
rule works without a table."""

from __future__ import annotations

import os
from pathlib import Path

from netfold.algorithms import ANY, sums_in_rank_order
from netfold.chooser.choices import Choices, choices_of
from netfold.chooser.model import Model
from netfold.chooser.table import Conditions, Table, TableError, conditions_here, path_of, read
from netfold.log import logger
from netfold.machine import this_machine

AGAIN = "netfold: {}. Until `netfold bench allreduce --tune` runs again, auto uses its built-in rule"


def named_table() -> str:
    """The table's file if the user names one; "" for this machine's own table."""
    return os.environ.get("NETFOLD_TUNING", "").strip()


def choices_for(ranks: int, link: str, wire: str, named: str = "", order: str = ANY) -> Choices | None:
    """The table's choices for `ranks` ranks over `link` (shm, tcp) with elements in the wire format `wire`, among
    algorithms that sum in this `order`.

    `named` is the file to read (NETFOLD_TUNING), also if it was measured on another machine. Without it, the file is
    this machine's table for the link and format, or else for fp32. Returns None if there is no usable table, or if the
    table does not cover this number of ranks.
    """
    try:
        table = _table(link, wire, named)
        if table is None:
            return None
        return choices_of(Model(table), ranks, lambda name: order == ANY or sums_in_rank_order(name, ranks, wire))
    except TableError as error:
        logger.warning("%s", AGAIN.format(error))
    except (OSError, RuntimeError) as error:  # no permission, a folder of that name, or no home directory
        logger.warning("%s", AGAIN.format(f"cannot read the tuning table: {error}"))
    return None


def _table(link: str, wire: str, named: str) -> Table | None:
    if named:
        table = read(Path(named))
        said = table.conditions
        if (said.machine, said.link, said.format) != (this_machine(), link, wire):
            logger.warning(
                "netfold: NETFOLD_TUNING=%s was measured on %s (%d cores) over %s in %s; auto uses it all the same",
                *(named, said.machine.cpu, said.machine.cores, said.link, said.format),
            )
        return table
    for each in dict.fromkeys((wire, "fp32")):
        path = path_of(conditions_here(link, each))
        if path.exists():
            return _of_here(read(path), path, conditions_here(link, each))
    return None


def _of_here(table: Table, path: Path, here: Conditions) -> Table:
    said = table.conditions
    if (said.machine, said.link, said.format) != (here.machine, here.link, here.format):
        raise TableError(
            f"{path} was measured on {said.machine.cpu} ({said.machine.cores} cores) over {said.link} in {said.format}"
        )
    if said.netfold != here.netfold:
        logger.warning(
            "netfold: %s was measured with netfold %s, this is %s; `netfold bench allreduce --tune` measures it again",
            *(path, said.netfold, here.netfold),
        )
    return table
