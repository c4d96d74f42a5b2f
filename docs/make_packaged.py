"""`make docs`: write `runner/config/packaged.json`, the parsed form of the packaged profile and rule files."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runner.config.load import PREPARED, prepare_packaged

if __name__ == "__main__":
    Path(PREPARED).write_text(f"{json.dumps(prepare_packaged(), separators=(',', ':'))}\n", "ascii")
