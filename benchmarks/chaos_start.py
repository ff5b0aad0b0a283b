"""Starts lives of the chaos soak: python -m benchmarks.chaos_start ENGINE SEED NUMBER FOLDER. It imports next to nothing, since
every worker process imports the main module."""

import json
import sys
from pathlib import Path

if __name__ == "__main__":
    from benchmarks.chaos_lives import lives

    engine, seed, number, folder = sys.argv[1:]
    seen = lives(engine, (int(seed), int(number)), Path(folder))
    (Path(folder) / "result.json").write_text(json.dumps(seen))
