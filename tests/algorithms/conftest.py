"""Makes what tests of algorithms share importable.

Always true: it holds nothing else.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
