"""tools/slow_links.py: its lines in virtual time, and nodes that really reach each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from repository import ROOT, module_of

TOOL = ROOT / "tools" / "slow_links.py"
RANK = """
import socket, sys, time
if sys.argv[1] == "0":
    with socket.create_server(("10.79.0.10", 9000)) as server:
        connection, _ = server.accept()
        connection.sendall(connection.recv(1))
        connection.recv(1)
else:
    for _ in range(100):
        try:
            connection = socket.create_connection(("10.79.0.10", 9000))
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    began = time.monotonic()
    connection.sendall(b"x")
    connection.recv(1)
    print("round trip", time.monotonic() - began)
"""


@pytest.fixture
def slow_links() -> ModuleType:
    return module_of(TOOL)


def test_a_line_has_a_rate_a_delay_and_a_queue(slow_links: ModuleType) -> None:
    line = slow_links.Line(rate_bit_s=1024 * 8000, delay_s=0.125)  # 1000 bytes take 1/1024 s
    for _ in range(300):
        line.take(bytes(1000), 0.0)
    assert line.arrived(0.125) == []
    assert [at for at, _ in line.arrived(0.1275)] == [0.125 + 1 / 1024, 0.125 + 2 / 1024]
    assert (line.sent_bytes, line.dropped) == (205_000, 95), "packets that would wait longer than 200 ms are dropped"
    assert len(line.arrived(1.0)) == 203


@pytest.mark.root
@pytest.mark.namespaces
@pytest.mark.usefixtures("nothing_left_behind")
def test_a_round_trip_takes_as_long_as_said(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    words = [sys.executable, str(TOOL), "--nodes", "2", "--round-trip-ms", "60", "--"]
    done = subprocess.run(
        [*words, sys.executable, str(script), "{node}"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) >= 0.06, done.stdout
