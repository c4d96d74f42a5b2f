"""The end of a process as its interpreter ends it, without freeing every object first.

The system frees the memory of a process at once. The interpreter clears each module and each object before, which takes
a tenth of the time of a short command.
"""

import os
import sys

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from typing import NoReturn


def leave(code: int) -> "NoReturn":
    """End this process with the exit code `code`. SOURCE: Py_FinalizeEx, up to the point at which it frees memory."""
    os._exit(finished(code) & 0xFF)


def finished(code: int) -> int:
    """Wait for the threads, run the functions of `atexit`, and flush the standard streams. Return the exit code: 120 if
    the output could not be written, otherwise `code`.
    """
    import atexit

    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # ValueError: the stream is closed
            code = 120
    return code
