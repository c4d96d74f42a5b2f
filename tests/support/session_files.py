"""Sessions written by the product's journal, for the tests of their readers."""

from pathlib import Path

from runner.messages import AssistantMessage, TextBlock, ToolCall, ToolResult, UserMessage
from runner.secrets.redactor import Redactor
from runner.sessions.journal import Journal
from runner.sessions.open import SessionRun, SessionTarget
from runner.sessions.store import SessionStore

ID = "0123456789abcdef"


def run_of(store: SessionStore, id: str = ID, *, model: str = "scripted:s", cwd: str = "/w") -> SessionRun:
    return SessionRun(id, "/w", cwd, "default", model, unattended=False)


def user(text: str) -> UserMessage:
    return UserMessage((TextBlock(text),))


def says(text: str) -> AssistantMessage:
    return AssistantMessage((TextBlock(text),))


def calls(*ids: str, text: str = "") -> AssistantMessage:
    said = (TextBlock(text),) if text else ()
    return AssistantMessage((*said, *(ToolCall(id, "bash", {"command": f"echo {id}"}) for id in ids)))


def result(id: str, text: str = "done") -> ToolResult:
    return ToolResult(id, (TextBlock(text),))


def verdict(call: str, text: str, verdict: str = "allow", answer: bool | None = None) -> dict[str, object]:
    """The entry of a decision about a call, with `text` in each of its texts."""
    texts = dict.fromkeys(("tool", "action", "verdict", "why", "rule", "cell"), text)
    asked = dict.fromkeys(("by", "feedback"), text if answer is not None else None)
    return {"call": call, **texts, "tiers": [text], "verdict": verdict, "record": 1, "answer": answer, **asked}


def new_store(state: Path) -> SessionStore:
    state.mkdir(mode=0o700, exist_ok=True)
    return SessionStore.of(state, "/w")


def new_journal(store: SessionStore, id: str = ID, mask: Redactor | None = None) -> Journal:
    return SessionTarget(store).journal(run_of(store, id), mask)


def sample_session(store: SessionStore, id: str = ID) -> Path:
    """A session of one prompt, one turn with two calls, and an answer: lines 1 to 8, as they are numbered."""
    journal = new_journal(store, id)
    journal.message(user("first"))  # lines 1 and 2 are the head and the run; this is 3
    journal.message(calls("a", "b", text="I look."))
    journal.result(1, result("b", "of b"))
    journal.result(0, result("a", "of a"))
    journal.message(says("It is done."))
    journal.message(user("second"))
    assert journal.close() is None
    return store.path(id)
