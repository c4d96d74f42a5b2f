"""The environment of the test suite: the same for every caller, with an empty folder as the home."""

import os
import re
import tempfile
from pathlib import Path

# All other variables are removed: settings of the product, of Git and of Docker, keys of providers, proxies, folders
# of XDG, and those of a pipeline.
KEPT = re.compile(
    r"PATH|TMPDIR|USER|LOGNAME|TERM"
    r"|(PYTHON|PYTEST_|COVERAGE_|COV_CORE_)\w*"  # of the interpreter, of pytest, and of its measurements
    r"|LAW_EXAMPLES|UPDATE_GOLDEN"  # of this suite
    r"|RUSTUP_HOME"  # where a program of the machine lies
)


def isolate() -> Path:
    """Remove the caller's variables from the environment of this process, and return its new, empty home.

    Tests in this process then read no file of the caller, and children that inherit the environment do not either. A
    test that needs a variable sets it.
    """
    for name in [name for name in os.environ if not KEPT.fullmatch(name)]:
        del os.environ[name]
    home = Path(tempfile.mkdtemp(prefix="ringfence-home-"))
    home.chmod(0o755)  # other users look into it as well
    os.environ |= {"HOME": str(home), "LANG": "C.UTF-8"}
    return home
