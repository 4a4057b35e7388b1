"""The timing diagrams of docs/pictures: an all-reduce is recorded cycle by cycle, and its drawing must equal the
pictures."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge
from pair import LANES, Nic, Pace
from test_nic import begin, tensors

from benches import simulate
from netfold_lab.rtl.drawings import pages

COUNT = 190  # two segments, the second one padded
DATA = 1  # a frame's kind
SIGNALS = [row.name for _, _, _, rows in pages.WAVES.values() for row in rows if "tdata" not in row.name]


def sample(nic: Nic, inside: bool) -> dict[str, int]:
    """One cycle. `data`: a frame with numbers begins; `inside`: it began earlier."""
    found = {name: nic.wires.get(name) for name in SIGNALS}
    kind = nic.wires.get("m_eth_tdata_o") >> 8 * 14 & 0xFF
    return {**found, "data": int(found["m_eth_tvalid_o"] and not inside and kind == DATA)}


@cocotb.test()
async def records(dut: Any) -> None:
    """From the post to the end."""
    pair, rng = await begin(dut, Pace())
    await pair.join(1)
    nic, samples, over = pair.nics[0], [], False

    async def watch() -> None:
        inside = False
        while not over:
            await RisingEdge(dut.clk_i)
            samples.append(sample(nic, inside))
            if samples[-1]["m_eth_tvalid_o"] and samples[-1]["m_eth_tready_i"]:
                inside = not samples[-1]["m_eth_tlast_o"]

    numbers = tensors(rng, COUNT)
    await pair.nics[1].post(numbers[1], 0, 1)
    await nic.post(numbers[0], 0, 1)
    cocotb.start_soon(watch())
    await nic.ended()
    over = True
    Path(os.environ["NETFOLD_RTL_WAVES"]).write_text(json.dumps(samples))


def test_waves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With NETFOLD_RTL_WAVES it writes the recording there; otherwise it compares the pictures."""
    asked = os.environ.get("NETFOLD_RTL_WAVES")
    out = Path(asked or tmp_path / "samples.json")
    monkeypatch.setenv("NETFOLD_RTL_WAVES", str(out))
    monkeypatch.setenv("SEED", "1")
    simulate("netfold_nic_quad", __file__, Ports=2, Lanes=LANES)
    if asked is None:
        texts = pages.waves(json.loads(out.read_text()))
        stale = [path.name for path, text in texts.items() if not path.exists() or path.read_text() != text]
        assert stale == [], "run netfold rtl drawings"
