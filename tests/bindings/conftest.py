"""The modules of this folder are imported by their names, by processes that tests start, too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
