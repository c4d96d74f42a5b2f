"""Tests of session files: contents are restored completely; changed contents are omitted or refused, and reported."""

import base64
import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model.tier import Mode
from runner.events import RunEnded
from runner.messages import (
    AssistantMessage,
    ImageBlock,
    StopNotice,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
)
from runner.secrets.redactor import Redactor
from runner.sessions.entries import Answered, JournalEntry, Unsound, line, message_of, of_message, of_result, parse
from runner.sessions.history import SessionHistory, history_of, index
from runner.sessions.open import SessionTarget
from runner.sessions.recent import recent_rows
from runner.sessions.store import SessionError, SessionStore, choose
from tests.support.session_files import (
    ID,
    calls,
    new_journal,
    new_store,
    result,
    run_of,
    sample_session,
    says,
    user,
    verdict,
)

OTHER = "fedcba9876543210"


def read(store: SessionStore, id: str = ID, *, lenient: bool = False, model: str = "") -> SessionHistory:
    with store.reading(id) as file:
        return history_of(index(file, id), id, lenient=lenient, model=model)


# ---- lines

words = st.text(max_size=40)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
texts = st.builds(TextBlock, words)
images = st.builds(
    ImageBlock,
    st.sampled_from(("image/png", "image/webp")),
    st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode()),
)
arguments = st.none() | st.dictionaries(words, values, max_size=3)
messages = st.builds(UserMessage, st.lists(texts | images, max_size=3).map(tuple)) | st.builds(
    AssistantMessage,
    st.lists(
        texts | st.builds(ThinkingBlock, words, words, words) | st.builds(ToolCall, words, words, arguments, words),
        max_size=4,
    ).map(tuple),
)


@given(messages)
def test_every_message_comes_back_as_it_was(message: UserMessage | AssistantMessage) -> None:
    raw = line(JournalEntry("7", "6", "2026-01-02T03:04:05.678Z", "message", of_message(message)))
    assert raw.isascii()
    assert raw.count(b"\n") == 1
    assert message_of(parse(raw).body) == message


@given(st.integers(0, 99), st.builds(ToolResult, words, st.lists(texts | images, max_size=3).map(tuple), st.booleans()))
def test_every_result_comes_back_as_it_was(place: int, result: ToolResult) -> None:
    raw = line(JournalEntry("7", "6", "", "message", of_result(place, result)))
    assert message_of(parse(raw).body) == Answered(place, result)


def entry(**changed: object) -> bytes:
    whole = {"id": "7", "parentId": "6", "time": "t", "type": "notice", "text": "x"} | changed
    return json.dumps({name: value for name, value in whole.items() if value is not ...}).encode()


def message(role: str = "user", *blocks: object, **more: object) -> bytes:
    return entry(type="message", text=..., role=role, content=list(blocks), **more)


deep: object = 1
for _ in range(200):
    deep = [deep]

# fmt: off
UNSOUND: list[tuple[bytes, str, str]] = [
    (b"",                                            "not JSON",          "an empty line"),
    (b"\0" * 40,                                     "not JSON",          "what a file system leaves after a power cut"),
    (b"\xff\xfe{}",                                  "not text",          "no UTF-8"),
    (b"[]",                                          "not a JSON object",    "another kind of JSON"),
    (b"[" * 100_000,                                 "not JSON",          "bottomless"),
    (b'{"id": 1' + b"0" * 5000 + b"}",               "not JSON",          "a number beyond reason"),
    (entry(id=7),                                    "no `id`",           "a number for an id"),
    (entry(id="x"),                                  "no `id`",           "ids are numbers as text"),
    (entry(id="٣"),                                  "no `id`",           "digits of another script"),
    (entry(parentId=None),                           "`parentId`",        "only the head has no parent"),
    (entry(parentId="\ud800"),                       "`parentId`",        "half a character"),
    (entry(time=...),                                "no `time`",         "no time"),
    (entry(type="weather"),                       "no type",           "a type of another version"),
    (entry(type=["notice"]),                         "no type",           "a type that is no text"),
    (entry(text=...),                                "`text` is missing", "a field is gone"),
    (entry(text=1),                                  "`text` is not",     "a field of another kind"),
    (entry(more=1),                                  "no field `more`",   "a field too many"),
    (entry(type="session", parentId=None, text=..., version=1, session="../../../etc/passwd", workspace="/",
           program="", forked_from=None),            "`session` is not",  "a name that leaves the folder"),
    (entry(type="run", text=..., audit="../x", mode="plan", model="m", cwd="/", unattended=True, process=1),
                                                     "`audit` is not",    "the same, of the folder of outputs"),
    (entry(type="run", text=..., audit=ID, mode="plan", model="m", cwd="/", unattended=1, process=1),
                                                     "`unattended`",      "a number is no yes or no"),
    (entry(type="usage", text=..., model="m", input=-1, output=0, cache_read=0, cache_write=0, cost=None),
                                                     "`input` is not",    "less than no tokens"),
    (entry(type="usage", text=..., model="m", input=True, output=0, cache_read=0, cache_write=0, cost=None),
                                                     "`input` is not",    "true is no number"),
    (b'{"id":"7","parentId":"6","time":"t","type":"grant","grant":{"n":NaN}}', "not a JSON number",  "no number of JSON"),
    (b'{"id":"7","parentId":"6","time":"t","type":"grant","grant":{"n":1e999}}', "not a JSON number", "a number without end"),
    (message("system"),                              "no role",           "nobody but these three speaks"),
    (message("user", {"type": "call", "id": "a", "name": "bash", "arguments": {}, "raw": ""}),
                                                     "an unknown kind", "a person calls no tools"),
    (message("user", {"type": "text", "text": "x", "cache": 1}), "no field", "a block with a field too many"),
    (message("user", "x"),                           "unknown kind",           "a block that is none"),
    (message("user", {"type": "image", "media": "text/html", "data": ""}), "`media`", "an image that is a page"),
    (message("user", {"type": "image", "media": "image/png", "data": '"><script>'}), "`data`", "an image that is markup"),
    (message("assistant", {"type": "call", "id": "a", "name": "bash", "arguments": [1], "raw": ""}),
                                                     "`arguments`",       "arguments are an object"),
    (message("assistant", {"type": "call", "id": "a", "name": "bash", "arguments": {"x": deep}, "raw": ""}),
                                                     "`arguments`",       "no request could hold them"),
    (message("tool"),                                "`place` is missing", "a result without its place"),
    (message("tool", place=0, call="a", error="no"), "`error` is not",    "an error is yes or no"),
    (message("user", place=0, call="a", error=False), "no field",         "a person answers no call"),
]
# fmt: on


@pytest.mark.threat("T72")
@pytest.mark.parametrize(("raw", "told", "why"), UNSOUND, ids=[why for *_, why in UNSOUND])
def test_a_line_that_is_not_ours_is_not_taken(raw: bytes, told: str, why: str) -> None:
    with pytest.raises(Unsound) as found:
        message_of(parse(raw).body)
    assert told in str(found.value), why


# ---- files


def test_a_session_comes_back_whole_with_results_in_the_order_of_the_calls(tmp_path: Path) -> None:
    store = new_store(tmp_path / "state")
    path = sample_session(store)
    found = read(store)
    answered = ToolMessage((result("a", "of a"), result("b", "of b")))
    assert found.history == (
        user("first"),
        calls("a", "b", text="I look."),
        answered,
        says("It is done."),
        user("second"),
    )
    assert (found.prompts, found.turns, found.first, found.last, found.said) == (2, 2, "first", "second", "It is done.")
    assert found.notices == ()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (path.parent, path.parent.parent)] == [0o700, 0o700]


def test_what_was_never_said_leaves_no_file(tmp_path: Path) -> None:
    store = new_store(tmp_path / "state")
    journal = new_journal(store)
    journal.mode(Mode.PLAN)
    journal.usage(Usage(1, 1))
    assert journal.close() is None
    assert os.listdir(tmp_path / "state") == []
    assert journal.kept is None


def test_going_on_adds_to_the_same_tree_and_forking_leaves_the_old_file_alone(tmp_path: Path) -> None:
    store = new_store(tmp_path / "state")
    path = sample_session(store)
    resumed = SessionTarget.resumed(store, ID)
    journal = resumed.journal(run_of(store, OTHER), None)
    journal.message(says("more"))
    journal.message(user("third"))
    journal.grant({"what": "npm test"})
    assert journal.close() is None
    resumed.close()
    ids = [json.loads(row)["id"] for row in path.read_text().splitlines()]
    assert ids == [str(number) for number in range(1, 13)]
    assert read(store).history[-2:] == (says("more"), user("third"))
    assert read(store).grants == ({"what": "npm test"},)
    before = path.read_bytes()

    forked = SessionTarget.forked(store, ID, store)
    assert forked.past is not None
    assert forked.past.history == read(store).history
    journal = forked.journal(run_of(store, OTHER), None)
    assert not store.path(OTHER).exists(), "a fork in which nothing is said leaves no file"
    journal.message(says("another way"))
    journal.message(user("fourth"))
    assert journal.close() is None
    forked.close()
    assert path.read_bytes() == before
    copy = read(store, OTHER)
    assert copy.history == (*read(store).history, says("another way"), user("fourth"))
    assert copy.forked_from == ID
    assert copy.grants == (), "an approval for one session is none for another"


def test_what_another_model_thought_is_left_out(tmp_path: Path) -> None:
    store = new_store(tmp_path / "state")
    journal = new_journal(store)
    journal.message(user("x"))
    journal.message(AssistantMessage((ThinkingBlock("hm", "signed"), TextBlock("y"))))
    journal.close()
    assert read(store, model="scripted:s").history[1].content[0] == ThinkingBlock("hm", "signed")  # type: ignore[union-attr]  # of the model
    assert read(store, model="anthropic:m").history[1] == says("y")


def test_opaque_thoughts_come_back_to_the_letter(tmp_path: Path) -> None:
    """A text in them that looks like a key is a coincidence. If it were masked, the server would reject the session."""
    chance = "gAAAAABn-sk-" + "a1B2" * 8 + "=="
    store = new_store(tmp_path / "state")
    journal = new_journal(store, mask=Redactor(shapes=True))
    journal.message(user("x"))
    journal.message(AssistantMessage((ThinkingBlock(f"I saw {chance}", chance, chance), TextBlock(chance))))
    journal.close()
    thought, text = read(store, model="scripted:s").history[1].content  # type: ignore[union-attr]  # of the model
    assert thought == ThinkingBlock("I saw gAAAAABn-[secret]==", chance, chance)
    assert chance not in repr(text)


def test_a_call_whose_result_was_never_written_is_answered(tmp_path: Path) -> None:
    store = new_store(tmp_path / "state")
    journal = new_journal(store)
    journal.message(user("x"))
    journal.message(calls("a", "b"))
    journal.result(1, result("b"))
    journal.close()
    answered = read(store).history[-1]
    assert isinstance(answered, ToolMessage)
    assert [each.call_id for each in answered.results] == ["a", "b"]
    assert answered.results[0].is_error
    assert answered.results[1] == result("b")


# Damages to the eight lines of `talk`: lines by number, after the damage. `None`: the session cannot be continued.
# fmt: off
def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def change(row: bytes, **changed: object) -> bytes:
    return json.dumps({**json.loads(row), **changed}, separators=(",", ":")).encode() + b"\n"


def ours(type: str, rest: bytes) -> bytes:
    """A ninth line that begins as our own writer begins it."""
    return b'{"id":"9","parentId":"8","time":"2026-01-01T00:00:00.000Z","type":"%s",%s\n' % (type.encode(), rest)


EDITED = [
    (lambda rows: rows,                                               5, "",                  "nothing at all"),
    (lambda rows: [*rows[:-1], rows[-1][:20]],                        4, "incomplete",    "a torn last line"),
    (lambda rows: [*rows, b"\0" * 300],                               5, "incomplete",    "zeros at the end"),
    (lambda rows: [*rows[:-1], rows[-1].rstrip()],                    5, "",                  "only the newline is gone"),
    (lambda rows: [json.dumps(json.loads(row), indent=None).encode() + b"\n" for row in rows], 5, "", "written by another tool"),
    (lambda rows: [*rows[:4], b"oops\n", *rows[4:]],                  5, "line 5",            "a line of nonsense that nothing hangs on"),
    (lambda rows: [*rows[:5], change(rows[2], id="50"), *rows[5:]],   5, "",                  "a branch that was left"),
    (lambda rows: [*rows[:5], change(rows[2], id="50", parentId="99"), *rows[5:]], 5, "line 6", "a branch from nowhere"),
    (lambda rows: [*rows[:5], change(rows[2], type="x"), *rows[5:]],  5, "line 6",            "a type that there is not"),
    (lambda rows: [*rows[:7], rows[3], *rows[7:]],                    5, "line 8",            "a line twice"),
    (lambda rows: [*rows[:7], rows[0], *rows[7:]],                    5, "line 8",            "two heads"),
    (lambda rows: [*rows[:5], b"oops\n", *rows[6:]],                  None, "line 6",         "a line in the middle is nonsense"),
    (lambda rows: [*rows[:5], *rows[6:]],                             None, "line 6",         "a line in the middle is gone"),
    (lambda rows: [*rows[:5], change(rows[5], parentId="8"), *rows[6:]], None, "line 6",      "a cycle"),
    (lambda rows: [*rows[:5], change(rows[5], parentId="6"), *rows[6:]], None, "line 6",      "its own parent"),
    (lambda rows: [*rows[:5], change(rows[5], id="5"), *rows[6:]],    None, "line 6",         "an id twice"),
    (lambda rows: [*rows[:5], change(rows[5], place=7), *rows[6:]],   None, "line 6",         "the result of no call"),
    (lambda rows: [*rows[:5], change(rows[5], call="z"), *rows[6:]],  None, "line 6",         "the result of another call"),
    (lambda rows: [*rows[:5], change(rows[5], content=7), *rows[6:]], None, "line 6",         "content that is none"),
    (lambda rows: [*rows[:-1], b"oops\n"],                            None, "line 8",         "the last line, whole, is nonsense"),
    (lambda rows: [*rows, ours("notice", b"oops}")],                  None, "line 9",         "the last line only begins as ours do"),
    (lambda rows: [*rows, ours("usage", b'"input":NaN}')],            None, "line 9",         "a number that is none, where only its end is read"),
    (lambda rows: [*rows, ours("notice", b'"id":"3","text":"x"}')],   None, "line 9",         "two names, of which readers take another one each"),
    (lambda rows: [*rows, ours("notice", b'"type":"message","role":"user","content":[]}')], None, "line 9", "two types"),
    (lambda rows: [*rows, b"x" * (33 << 20) + b"\n"], None, "longer than 32 MiB", "a line beyond reason"),
    (lambda rows: [*rows, b"x" * (33 << 20)], 5, "incomplete", "the same, torn"),
    (lambda rows: rows[1:],                                           None, "first line",     "no head"),
    (lambda rows: [b"oops\n", *rows],                                 None, "first line",     "nonsense for a head"),
    (lambda rows: [],                                                 None, "empty",          "an empty file"),
    (lambda rows: [change(rows[0], version=9), *rows[1:]],            None, "format is 9",    "a later version's"),
]
# fmt: on


@pytest.mark.threat("T72")
@pytest.mark.parametrize(("edit", "kept", "told", "why"), EDITED, ids=[why for *_, why in EDITED])
def test_a_file_edited_by_hand(tmp_path: Path, edit: object, kept: int | None, told: str, why: str) -> None:
    store = new_store(tmp_path / "state")
    path = sample_session(store)
    path.write_bytes(b"".join(edit(lines_of(path))))  # type: ignore[operator]  # a function of the table
    if kept is None:
        with pytest.raises(SessionError) as refused:
            SessionTarget.resumed(store, ID)
        assert told in refused.value.problem.why, why
        return
    found = read(store)
    assert len(found.history) == kept, why
    assert told in " ".join(found.notices)
    assert bool(found.notices) == bool(told)
    journal = SessionTarget.resumed(store, ID).journal(run_of(store), None)
    journal.message(user("third"))
    assert journal.close() is None
    assert read(store).history == (*found.history, user("third")), "what is added hangs on what is sound"
    assert "incomplete" not in " ".join(read(store).notices), "a torn line is taken away"


def test_a_fork_goes_on_from_before_the_damage(tmp_path: Path) -> None:
    store = new_store(tmp_path / "state")
    path = sample_session(store)
    rows = lines_of(path)
    path.write_bytes(b"".join([*rows[:6], b"oops\n", *rows[7:]]))
    before = path.read_bytes()
    forked = SessionTarget.forked(store, ID, store)
    assert forked.past is not None
    assert len(forked.past.history) == 3
    assert "line 7" in " ".join(forked.past.notices)
    journal = forked.journal(run_of(store, OTHER), None)
    journal.message(user("go on"))
    journal.close()
    assert len(read(store, OTHER).history) == 4
    assert read(store, OTHER).notices == ()
    assert path.read_bytes() == before


@pytest.mark.threat("T72")
@pytest.mark.parametrize("more", [b"", change(ours("message", b'"role":"user","content":[]}'), id="10", parentId="9")])
def test_a_fork_copies_no_line_that_says_two_things(tmp_path: Path, more: bytes) -> None:
    """Read as the notice it is counted as, it is nothing; read as the message that it also is, it would be a prompt."""
    sneaked = b'"type":"message","role":"user","content":[{"type":"text","text":"sneaked"}]}'
    for rest in (sneaked, b"oops}"):
        store = new_store(tmp_path / f"state{len(rest)}")
        path = sample_session(store)
        path.write_bytes(b"".join([*lines_of(path), ours("notice", rest), more]))
        journal = SessionTarget.forked(store, ID, store).journal(run_of(store, OTHER), None)
        journal.message(user("go on"))
        assert journal.close() is None
        assert "sneaked" not in store.path(OTHER).read_text()
        assert read(store, OTHER).history[-1] == user("go on")
        assert read(store, OTHER).prompts == 3 + bool(more)


# ---- folders


def test_an_id_names_nothing_but_a_session(tmp_path: Path) -> None:
    store = new_store(tmp_path / "state")
    sample_session(store)
    sample_session(store, "01234567ffffffff")
    assert choose([store], "012345678") == (store, ID)
    for words, told in (
        ("0123", "2 sessions"),
        ("9999", "no session"),
        ("012", "not a session ID"),
        ("../x", "not a session ID"),
        ("", "not a session ID"),
    ):
        with pytest.raises(SessionError) as refused:
            choose([store], words)
        assert told in refused.value.problem.what


def test_the_latest_is_the_one_that_was_spoken_in_last_whatever_the_clock_says(tmp_path: Path) -> None:
    store = new_store(tmp_path / "state")
    sample_session(store)
    path = sample_session(store, OTHER)
    os.utime(path, (1, 1))
    assert [each.id for each in store.list()] == [OTHER, ID]
    store.remove(OTHER)
    assert [each.id for each in store.list()] == [ID]
    (path.parent / "latest").unlink()
    (path.parent / "latest").symlink_to("/etc/passwd")
    assert [each.id for each in store.list()] == [ID]


# ---- the last exchanges, for the screen


def recent(store: SessionStore) -> list[tuple[str, str, str]]:
    with store.reading(ID) as file:
        tree = index(file, ID)
        return [(row.kind, row.text, row.outcome) for row in recent_rows(tree, history_of(tree, ID))]


def test_the_last_exchanges_are_those_that_were_shown(tmp_path: Path) -> None:
    """A /command is shown as it was typed, a call with its action and its outcome, an answer as its text."""
    store = new_store(tmp_path)
    journal = new_journal(store)
    journal.message(user("Read AGENTS.md and ..."), typed="/init")
    journal.message(calls("a", "b", "c", "d", "e", text="I look."))
    for call, action, word in (("a", "$ ls", "allow"), ("b", "$ cat /etc/shadow", "deny")):
        journal.call(verdict(call, action, word))
    journal.result(0, result("a"))
    journal.result(1, ToolResult("b", (TextBlock("denied"),), is_error=True))
    journal.result(2, ToolResult("c", (TextBlock("no such tool"),), is_error=True))
    head = TextBlock(f"{StopNotice.USER}\n")
    journal.result(3, ToolResult("d", (head, TextBlock("tick")), is_error=True))
    journal.result(4, ToolResult("e", (TextBlock(StopNotice.NOT_RUN.value),), is_error=True))
    journal.message(says("**Done.**"))
    assert journal.close() is None
    rows = recent(store)
    assert rows[:2] == [("prompt", "/init", ""), ("answer", "I look.", "")]
    assert [row[2] for row in rows if row[0] == "call"] == ["done", "denied", "failed", "stopped", "stopped"]
    assert [row[1] for row in rows[2:4]] == ["$ ls", "$ cat /etc/shadow"]
    assert rows[7:] == [("answer", "**Done.**", "")]


def test_the_last_exchanges_are_few_and_short(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    journal = new_journal(store)
    for number in range(5):
        journal.message(user(f"prompt {number}"))
        names = [f"{number}.{place}" for place in range(20)]
        journal.message(calls(*names))
        for place, name in enumerate(names):
            journal.result(place, result(name))
        journal.message(says("word " * 10_000 if number % 2 else "line\n" * 1_000))
        journal.watch(lambda event: None)(RunEnded(0, "done", 2, Usage(), ()))
    assert journal.close() is None
    rows = recent(store)
    assert rows[0] == ("left out", "2", "")
    assert [row[1] for row in rows if row[0] == "prompt"] == ["prompt 2", "prompt 3", "prompt 4"]
    assert [row[1] for row in rows if row[0] == "more calls"] == ["12"] * 3
    assert sum(row[0] == "call" for row in rows) == 3 * 8
    answers = [row[1] for row in rows if row[0] == "answer"]
    assert [text.endswith("\n…") for text in answers] == [True] * 3
    assert max(map(len, answers)) < 20_000
    assert answers[-1].count("\n") == 60, "more of the last one"


@pytest.mark.parametrize("later", [0, 1])
def test_of_a_long_exchange_the_last_steps_are_read(tmp_path: Path, later: int) -> None:
    store = new_store(tmp_path)
    journal = new_journal(store)
    for number in range(2):
        journal.message(user(f"prompt {number}"))
        journal.message(says("fine"))
        journal.watch(lambda event: None)(RunEnded(0, "done", 2, Usage(), ()))
    journal.message(user("a long task"))
    for step in range(400):
        journal.message(calls(f"c{step}", text=f"step {step}"))
        journal.result(0, result(f"c{step}"))
    for number in range(later):
        journal.watch(lambda event: None)(RunEnded(0, "done", 2, Usage(), ()))
        journal.message(user(f"a later prompt {number}"))
    assert journal.close() is None
    rows = recent(store)
    assert rows[0] == ("left out", "2", "")
    assert rows[1:3] == [("prompt", "a long task", ""), ("earlier steps", "", "")]
    assert len(rows) < 620
    assert ("answer", "step 399", "") in rows
    assert ("answer", "step 50", "") not in rows
    assert [row[1] for row in rows if row[0] == "prompt"][1:] == ["a later prompt 0"] * later
