"""Puts this folder on the path: `expected_failures` serves the tests of several folders. And lets
processes that tests start be interrupted, which a shell has what it runs in the background ignore.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
