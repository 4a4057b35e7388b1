"""Makes the helpers beside this file importable for the tests of every device, and the frames of the Python tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "python"))
