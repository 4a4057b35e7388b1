"""The design under three linters: verilator -Wall, verible with rtl/.rules.verible_lint, and slang."""

from __future__ import annotations

from collections.abc import Callable

from netfold_lab.rtl.paths import BOARD, NIC, RTL, SWITCH, RtlError, call, sources, tool, verilator_folder

TIMEOUT_S = 120.0
# Top modules for -Wall, with their folders and parameters; and for slang.
TOPS = (
    ("netfold_nic", NIC, ()),
    ("netfold_nic", NIC, ("-GLanes=16",)),
    ("netfold_nic", NIC, ("-GHasBfp=0",)),
    ("netfold_switch", SWITCH, ("-Wno-UNUSEDPARAM",)),  # counters are also addressed by number
    ("netfold_switch", SWITCH, ("-Wno-UNUSEDPARAM", "-GPorts=3", "-GJobs=2", "-GHasBfp=0")),
    ("netfold_switch", SWITCH, ("-Wno-UNUSEDPARAM", "-GPorts=3", "-GHasHalf=1")),
    ("netfold_switch", SWITCH, ("-Wno-UNUSEDPARAM", "-GPorts=2", "-GHasBfp=0", "-GHasHalf=1")),
    ("netfold_switch_sliced", SWITCH, ("-Wno-UNUSEDPARAM", "-GPorts=2")),
    ("netfold_switch_sliced", SWITCH, ("-Wno-UNUSEDPARAM", "-GPorts=2", "-GSlices=2", "-GWidth=64")),
    ("gigabit_switch", BOARD, ("-Wno-UNUSEDPARAM",)),
)
ELABORATED = (
    ("netfold_nic", NIC),
    ("netfold_nic_quad", NIC),
    ("netfold_switch", SWITCH),
    ("netfold_switch_sliced", SWITCH),
    ("versa_ecp5", BOARD),
)


def _verilator() -> None:
    program = str(verilator_folder() / "bin" / "verilator_bin")
    for top, folders, parameters in TOPS:
        call([program, "--lint-only", "-Wall", "--top-module", top, *parameters, *sources(folders)], TIMEOUT_S, RTL)


def _verible() -> None:
    formal = [path.relative_to(RTL).as_posix() for path in sorted((RTL / "formal").glob("*.sv"))]
    program = tool("verible-verilog-lint", "verible")
    call([program, "--rules_config", ".rules.verible_lint", *sources(), *formal], TIMEOUT_S, RTL)


def _slang() -> None:
    try:
        from pyslang import driver
    except ModuleNotFoundError:
        raise RtlError("pyslang is missing: pip install 'netfold[rtl]'") from None
    for top, folders in ELABORATED:
        slang = driver.Driver()
        slang.addStandardArgs()
        files = " ".join(str(RTL / name) for name in sources(folders))
        arguments = f"slang --top {top} -Wextra -Wno-useless-cast -Wno-case-redundant-default -Werror {files}"
        if not (slang.parseCommandLine(arguments, driver.CommandLineOptions()) and slang.processOptions()):
            raise RtlError("slang rejects its arguments")
        if not (slang.parseAllSources() and slang.runFullCompilation(True)):
            raise RtlError(f"slang finds mistakes in {top} (above)")


LINTERS: dict[str, Callable[[], None]] = {"verilator": _verilator, "verible": _verible, "slang": _slang}
