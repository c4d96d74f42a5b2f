"""The command `agent` as tests start it by execve(2): with longer deadlines (`long_deadlines`).

Such a process imports nothing of the tests. Therefore its script is another one than the installed one: it raises the
deadlines first. What the program starts itself, such as a session or a resident process, runs the same script, because
the program uses `sys.argv[0]`. `INSTALLED` is the script that users have, for tests of the start itself.
"""

import os
import sys
import tempfile
from pathlib import Path

from tests.support.long_deadlines import FACTOR

INSTALLED = str(Path(sys.executable).with_name("agent"))
_TEXT = f"""#!{sys.executable}
import sys
from policy.model.deadline import stretch
stretch({FACTOR})
from runner.resident import client
client.PATIENCE *= {FACTOR}
from ringfence import main
if __name__ == '__main__':
    sys.exit(main())
"""


def _written() -> str:
    """Write the script into the environment of the tests, where each user of the tests can read it."""
    path = Path(sys.prefix) / "tests" / "agent"
    if not path.exists() or path.read_text() != _TEXT:
        path.parent.mkdir(exist_ok=True)
        handle, new = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w") as file:
            file.write(_TEXT)
        os.chmod(new, 0o755)
        os.replace(new, path)
    return str(path)


AGENT = _written()


def impatient(module: str, constant: str, seconds: float) -> list[str]:
    """Return the beginning of a command line of `agent` in which one deadline is short: nothing can ever happen before it.

    All others are as long as in each process of the tests.
    """
    program = f"""
import sys
from policy.model.deadline import stretch
stretch({FACTOR})
from runner.resident import client
client.PATIENCE *= {FACTOR}
import {module} as changed
changed.{constant} = {seconds}
from ringfence import main
sys.argv[0] = {AGENT!r}
sys.exit(main())
"""
    return [sys.executable, "-c", program]
