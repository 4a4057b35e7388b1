"""The pictures of the hardware pages (docs/pictures) and their sources."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from netfold_lab.rtl.design import elaborated
from netfold_lab.rtl.drawings import block_diagram, waveform
from netfold_lab.rtl.drawings.flows import flows
from netfold_lab.rtl.drawings.waveform import Row, Sample, address, beats
from netfold_lab.rtl.paths import ROOT, RTL, call

FOLDER = ROOT / "docs" / "pictures"
LANES = 8
# Module, smallest flow in bits to draw, file.
DIAGRAMS = (("netfold_nic", 16, "nic.svg"), ("ring_datapath", 64, "datapath.svg"))
TIMEOUT_S = 900.0
BEFORE = 1  # cycles before the event


def _commands(kind: str) -> list[Row]:
    valid, name = f"m_{kind}_command_tvalid_o", f"m_{kind}_command_address_o"
    return [Row(valid), Row(f"m_{kind}_command_tready_i"), Row(name, address(name, valid))]


# Title, start signal, number of cycles, rows.
WAVES = {
    "read.svg": (
        "Reading host memory: bursts are asked for; their data come one behind the other",
        "m_read_command_tvalid_o",
        28,
        [*_commands("read"), Row("s_read_tvalid_i"), Row("s_read_tready_o"),
         Row("s_read_tdata_i", beats("s_read_tvalid_i", "s_read_tready_o"))],
    ),
    "write.svg": (
        "Writing host memory: a command, its beats, and later a pulse for each command",
        "m_write_command_tvalid_o",
        28,
        [*_commands("write"), Row("m_write_tvalid_o"), Row("m_write_tready_i"),
         Row("m_write_tdata_o", beats("m_write_tvalid_o", "m_write_tready_i")), Row("m_write_tlast_o"),
         Row("written_i")],
    ),
    "frame.svg": (
        "A frame towards the MAC: the header (h), then payload, without a hole",
        "data",
        20,
        [Row("m_eth_tvalid_o"), Row("m_eth_tready_i"),
         Row("m_eth_tdata_o", beats("m_eth_tvalid_o", "m_eth_tready_i", "m_eth_tlast_o")), Row("m_eth_tlast_o")],
    ),
}  # fmt: skip


def diagrams() -> dict[Path, str]:
    """Block diagrams, from the elaborated design. Raises RtlError."""
    modules = elaborated("netfold_nic", LANES)
    found = {}
    for kind, bits_min, file in DIAGRAMS:
        name = next(name for name in modules if name.partition("$")[0] == kind)
        title = f"{kind}, {LANES} lanes: what flows {bits_min} bits wide and more"
        found[FOLDER / file] = block_diagram.draw(title, flows(modules[name], modules, bits_min))
    return found


def waves(samples: Sequence[Sample]) -> dict[Path, str]:
    """Timing diagrams, from every cycle of an all-reduce."""
    found = {}
    for file, (title, begins, cycles, rows) in WAVES.items():
        first = next(at for at, sample in enumerate(samples) if sample[begins]) - BEFORE
        found[FOLDER / file] = waveform.draw(title, samples[first : first + cycles], rows)
    return found


def simulated() -> list[Sample]:
    """The cycles that rtl/tests/nic records. It takes minutes if the test is not built. Raises RtlError."""
    with tempfile.TemporaryDirectory(prefix="netfold-waves-") as folder:
        out = Path(folder) / "samples.json"
        test = RTL / "tests" / "nic" / "test_waves.py"
        call(["env", f"NETFOLD_RTL_WAVES={out}", sys.executable, "-m", "pytest", "-q", str(test)], TIMEOUT_S)
        samples: list[Sample] = json.loads(out.read_text())
    return samples


def write() -> list[Path]:
    """Write all pictures; returns those that changed. Raises RtlError."""
    texts = {**diagrams(), **waves(simulated())}
    changed = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    for path in changed:
        path.write_text(texts[path])
    return changed
