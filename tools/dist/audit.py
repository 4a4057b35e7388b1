"""auditwheel for a wheel of any processor:

    audit.py PROCESSOR ARGUMENT...

Its command line offers only the tags of the processor that it runs on. Its checks read nothing but the wheel."""

from __future__ import annotations

import platform
import sys

from auditwheel.main import main

processor = sys.argv.pop(1)
platform.machine = lambda: processor
sys.exit(main())
