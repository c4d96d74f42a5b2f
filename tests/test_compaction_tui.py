"""/compact as a person meets it: it can be stopped, and what is said meanwhile waits."""

import threading

from model_server import Delta, serving
from test_tui import AGENT, Desk, desk, leave
from tmux import Tmux

__all__ = ["desk"]  # the fixture


def test_who_speaks_while_notes_are_written_is_heard_after_them(desk: Desk) -> None:
    enough = threading.Event()

    def answer(number: int, headers: str, body: bytes) -> Delta | str:
        if b"You write notes" in body:
            enough.wait(120)
        return {"content": f"answer {number} " + "word " * 3000 + f"end {number}"}

    with serving(answer) as server:
        environ = {**desk.environ, "OPENAI_API_KEY": "sk-test-of-nothing", "OPENAI_BASE_URL": server.url}
        window = Tmux(desk.base, desk.work, environ, AGENT, "--model", "openai:m")
        desk.windows.append(window)
        window.type("one", "Enter")
        window.until("end 1")
        window.until("done (1 turn)")
        window.type("two", "Enter")
        window.until("end 2")
        window.gone("working")
        window.type("/compact", "Enter")
        window.until("writes notes about")
        window.type("three", "Enter")
        window.until("waits: three")
        window.type("C-c")
        window.until("end 4")
        assert "nothing yet" not in leave(window)
        enough.set()
    assert b"<notes " not in server.requests[-1][1], "what was stopped changed nothing"
    assert b"three" in server.requests[-1][1]
