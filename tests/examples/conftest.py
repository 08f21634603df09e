"""The examples are imported by their names, and so are the stand-ins of their tests."""

import sys
from pathlib import Path

for folder in ("decode", "mlp", "pipeline", "pricing", "server"):
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / folder))
sys.path.insert(0, str(Path(__file__).parent))
