"""`make docs`: write the help page of `agent` for 80 columns (`runner/cli/help_page.txt`). `--print` prints it."""

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runner.cli.help_page import COLUMNS, PAGE

PROGRAM = "from runner.cli.app import run_app; run_app(['--help'])"  # always by typer, not from the page itself


def page() -> str:
    """Return the page as typer prints it."""
    root = str(Path(__file__).resolve().parent.parent)
    environ = {"PATH": os.environ["PATH"], "COLUMNS": str(COLUMNS), "LC_ALL": "C.UTF-8", "PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environ, capture_output=True, encoding="utf-8", check=True
    )
    return done.stdout


if __name__ == "__main__":
    if "--print" in sys.argv:
        print(page(), end="")
    else:
        Path(PAGE).write_text(page(), "utf-8")
