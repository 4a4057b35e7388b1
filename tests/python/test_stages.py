"""`make test` ends with pytest: stages that failed before fail here too, so the last line shows the whole result."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def test_every_earlier_stage_of_make_test_passed() -> None:
    failed = os.environ.get("NETFOLD_FAILED_STAGES", "").split()
    if not failed:
        return
    ends = []
    for name in failed:
        log = Path(os.environ["NETFOLD_STAGE_LOGS"], f"{name}.log")
        lines = log.read_text(errors="replace").splitlines() if log.exists() else ["(it printed nothing)"]
        ends.append("\n".join([f"=== the end of stage {name}:", *lines[-60:]]))
    repeat = f"NETFOLD_SEED={os.environ.get('NETFOLD_SEED')} make test repeats it"
    pytest.fail("\n".join([*ends, f"=== failed: {', '.join(failed)}; {repeat}"]), pytrace=False)
