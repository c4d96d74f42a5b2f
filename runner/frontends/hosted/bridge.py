"""`agent attach --json`: the lines of a hosted session on standard output, and those of a program on standard input."""

import os
import sys
import threading
from collections.abc import Mapping

from runner.frontends.hosted.connection import HostedConnection
from runner.frontends.hosted.protocol import USUAL_REPLAY
from runner.problems import Exit
from runner.text.json_line import json_line

_PIECE = 1 << 16  # bytes


def bridge(id: str, environ: Mapping[str, str]) -> int:
    """Pass lines in both directions until the session or the input ends. The end of input detaches. Raise HostedError.

    The first line is `attached`.
    """
    connection = HostedConnection(id, environ, who=f"program {os.getpid()}", scope="prompt", replay=USUAL_REPLAY)
    print(json_line(connection.head), flush=True)

    def forward() -> None:
        try:
            while piece := os.read(0, _PIECE):
                connection.socket.sendall(piece)
            connection.socket.sendall(b'\n{"type":"detach"}\n')
        except OSError:
            pass  # the session has closed the connection, which ends the loop below

    threading.Thread(target=forward, name="standard input", daemon=True).start()
    for line in connection.lines():
        sys.stdout.write(f"{line.decode('ascii')}\n")
        sys.stdout.flush()
    connection.close()
    return Exit.DONE
