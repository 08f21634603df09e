"""The examples are imported by their names."""

import sys
from pathlib import Path

for folder in ("decode", "pipeline", "pricing"):
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / folder))
