"""`agent attach` at a terminal.

What has happened is drawn before `live.py` with the input line is loaded, which takes as long again.
"""

from collections.abc import Mapping

from runner.frontends.hosted.connection import HostedConnection, own_name
from runner.frontends.hosted.protocol import USUAL_REPLAY
from runner.frontends.hosted.view import SessionView


def attach_at_terminal(id: str, environ: Mapping[str, str]) -> int:
    """Attach to the session `id` at this terminal until the user detaches or the session ends. Raise HostedError."""
    connection = HostedConnection(id, environ, who=own_name(), scope="prompt", replay=USUAL_REPLAY)
    view = SessionView(connection)
    view.draw_replay()
    from runner.frontends.hosted.live import LiveTerminal

    return LiveTerminal(connection, view).serve()
