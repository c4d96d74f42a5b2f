"""A live key that turns up in text is masked: in every event, in the record, on the shelf, in what the model is told."""

import asyncio
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.action import RunArgv, RunScript
from policy.tier import Mode, Tier
from policy.verdict import Problem
from runner.events import Chunk, Event, Finished, Notice, Prompted, Proposed, RunEnded, Said, Thought
from runner.messages import Usage
from runner.redactor import SHORTEST, Redactor
from runner.secrets import MASK, Secret
from sandbox.backend import Outcome, Violation

sys.path.append(str(Path(__file__).parent / "wire"))
loopback = importlib.import_module("loopback")

KEY = "sk-canary-0c1d2e3f4a5b6c7d"
REDACTOR = Redactor([Secret(KEY)])
AGENT = str(Path(sys.executable).parent / "agent")

# fmt: off
TEXTS: list[tuple[str, str, str]] = [
    ("nothing",                   "nothing",                     "ordinary text stays"),
    (f"a {KEY} b",                f"a {MASK} b",                 "the key"),
    (KEY * 3,                     MASK * 3,                      "one after the other"),
    (f"cut: {KEY[:-1]}",          f"cut: {MASK}",                "all but its end, where the text was cut"),
    (f"cut: {KEY[:8]}",           f"cut: {MASK}",                "enough of it to be worth hiding"),
    (f"cut: {KEY[:7]}",           f"cut: {KEY[:7]}",             "too little of it to be any use"),
    (f"{KEY[:-1]} goes on",       f"{KEY[:-1]} goes on",         "another word that begins like it"),
    ("",                          "",                            "nothing at all"),
]
# fmt: on


@pytest.mark.threat("T48")
@pytest.mark.parametrize(("text", "shown", "why"), TEXTS, ids=[why for *_, why in TEXTS])
def test_a_text_is_masked(text: str, shown: str, why: str) -> None:
    assert REDACTOR.text(text) == shown, why
    assert REDACTOR.mask(text.encode()) == shown.encode(), why


@pytest.mark.parametrize("word", ["x", "EMPTY", "ollama", "no-key-here", "a" * (SHORTEST - 1)])
def test_what_is_given_to_servers_without_keys_is_no_secret(word: str) -> None:
    assert Redactor([Secret(word)]).text(f"the word {word}") == f"the word {word}"


# A key over two letters begins again inside of itself, and the text is full of halves of it.
LETTERS = st.text("ab", min_size=SHORTEST, max_size=SHORTEST + 3)
PIECES = st.lists(st.text("abc", max_size=9), max_size=12)


@pytest.mark.threat("T48")
@given(key=LETTERS, pieces=PIECES, places=st.lists(st.integers(0, 12), max_size=4), data=st.data())
def test_law_pieces_are_masked_like_the_whole(
    key: str, pieces: list[str], places: list[int], data: st.DataObject
) -> None:
    for place in places:
        pieces.insert(place, key)
    whole = "".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    redactor = Redactor([Secret(key)])
    stream = redactor.stream()
    parts = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    shown = "".join([*(stream.feed(part) for part in parts), stream.end()])
    assert shown == redactor.text(whole)
    assert key not in shown


@pytest.mark.threat("T48")
def test_values_are_masked_at_any_depth_and_nothing_else_changes() -> None:
    outcome = Outcome(
        1,
        stdout=f"\xff{KEY}".encode("latin-1"),
        stderr=b"fine",
        violations=(Violation(f"saw {KEY}", "/x", "none", True),),
        problem=Problem("a", KEY, "c"),
        data={"lines": [{"text": f"1 {KEY}"}], "size": 3, "none": None, "yes": True},
    )
    shown = REDACTOR.mask(outcome)
    assert KEY not in repr(shown)
    assert shown.stdout == b"\xff" + MASK.encode()
    assert shown.data == {"lines": [{"text": f"1 {MASK}"}], "size": 3, "none": None, "yes": True}
    assert (shown.status, shown.stderr, shown.seconds) == (1, b"fine", 0.0)
    same = (Mode.DEFAULT, Tier.READ, 1.5, True, None)
    assert REDACTOR.mask(same) == same
    assert Redactor().mask(outcome) is outcome, "without a secret nothing is even copied"


@pytest.mark.threat("T48")
def test_no_event_shows_it_not_even_in_pieces() -> None:
    half, rest = KEY[:10], KEY[10:]
    events: list[Event] = []
    watch = REDACTOR.watch(events.append)
    for event in (
        Prompted(f"use {KEY}"),
        Said(f"so {half}"), Said(f"{rest} it is, "), Said(half),
        Thought(f"hm {half}"), Thought(f"{rest}!"),
        Proposed("1", "bash", RunScript(f"echo {KEY}", "/w")),
        Proposed("2", "bash", RunArgv(("echo", KEY), "/w")),
        Chunk("1", 1, half), Chunk("2", 1, f"two {half}"), Chunk("1", 2, half), Chunk("1", 1, f"{rest} one"),
        Finished("1", 0, 0.1, None, (), None, f"1 {KEY}", None),
        Chunk("2", 1, "no key"),
        RunEnded(0, f"done {KEY}", 1, Usage(), ()),
        Notice("end"),
    ):  # fmt: skip
        watch(event)
    assert KEY not in "".join(event.line() for event in events)
    said = "".join(event.text for event in events if isinstance(event, Said))
    assert said == f"so {MASK} it is, {MASK}", "the second half never came"
    assert "".join(event.text for event in events if isinstance(event, Thought)) == f"hm {MASK}!"
    chunks = [event for event in events if isinstance(event, Chunk)]
    told = {key: "".join(chunk.text for chunk in chunks if (chunk.call, chunk.stream) == key) for key in
            [("1", 1), ("1", 2), ("2", 1)]}  # fmt: skip
    assert told == {("1", 1): f"{MASK} one", ("1", 2): MASK, ("2", 1): f"two {half}no key"}
    order = [type(event).__name__ for event in events if not isinstance(event, Chunk)]
    assert order == ["Prompted", "Said", "Said", "Said", "Thought", "Thought", "Proposed", "Proposed", "Finished",
                     "RunEnded", "Notice"]  # fmt: skip
    last = max(place for place, event in enumerate(events) if isinstance(event, Chunk) and event.call == "1")
    assert isinstance(events[last + 1], Finished), "all of a call's output comes before its end"


def sse(*choices: dict[str, object]) -> bytes:
    return b"".join(f"data: {json.dumps({'choices': [each]})}\n\n".encode() for each in choices) + b"data: [DONE]\n\n"


def calls(*asked: tuple[str, dict[str, object]]) -> dict[str, object]:
    return {
        "index": 0,
        "finish_reason": "tool_calls",
        "delta": {
            "tool_calls": [
                {"index": place, "id": f"c{place}", "function": {"name": name, "arguments": json.dumps(arguments)}}
                for place, (name, arguments) in enumerate(asked)
            ]
        },
    }


@pytest.mark.threat("T48")
@pytest.mark.parametrize("form", [["--json"], []], ids=["events", "transcript"])
def test_a_whole_run_shows_keeps_and_tells_none_of_it(form: list[str], tmp_path: Path) -> None:
    """The user pasted the key into the prompt and into a file; the model says it and makes every tool print it."""
    work, state = tmp_path / "work", tmp_path / "state"
    work.mkdir()
    (work / "long.txt").write_text(f"{KEY} and more\n" * 5000)
    (work / "short.txt").write_text(f"token = {KEY}\n")
    asked = (
        ("bash", {"command": f"echo {KEY}"}),
        ("bash", {"command": "cat long.txt"}),
        ("bash", {"command": f"cat {KEY}"}),
        ("bash", {"command": f"curl https://example.test/{KEY}"}),
        ("bash", {"command": f"echo {'x' * 16375} {KEY}"}),
        ("read", {"path": "short.txt"}),
        ("grep", {"pattern": "token"}),
        ("read", {"path": f"{KEY}.txt"}),
        ("edit", {"path": "short.txt", "old_string": "token", "new_string": "key"}),
        ("read", {KEY: 1}),
        (KEY, {}),
    )
    turns = [
        sse({"index": 0, "delta": {"content": f"I use {KEY[:9]}"}}, {"index": 0, "delta": {"content": KEY[9:]}}, calls(*asked)),
        sse({"index": 0, "delta": {"content": "done"}, "finish_reason": "stop"}),
    ]  # fmt: skip

    async def play() -> tuple[int, bytes, list[bytes]]:
        async with loopback.Loopback([loopback.stream(turn) for turn in turns]) as server:
            environ = {
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path / "home"),
                "RINGFENCE_STATE_DIR": str(state),
                "OPENAI_API_KEY": KEY,
                "OPENAI_BASE_URL": f"{server.url}/v1",
            }
            agent = await asyncio.create_subprocess_exec(
                AGENT, "run", *form, "--model", "openai:m", "--mode", "accept-edits", f"my key is {KEY}",
                cwd=work, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            out, _ = await asyncio.wait_for(agent.communicate(), 120)
            return agent.returncode or 0, out, [request.body for request in server.requests]

    status, out, bodies = asyncio.run(play())
    assert status == 3, out.decode()
    assert KEY.encode() not in out
    assert MASK.encode() in out
    results = [message["content"] for message in json.loads(bodies[1])["messages"] if message["role"] == "tool"]
    assert len(results) == len(asked)
    assert KEY not in json.dumps(results)
    silent = [place for place, result in enumerate(results) if MASK not in result]
    assert silent == [4], "all others would have shown it; this one's script is cut in the middle of it in the record"
    kept = [path for path in state.rglob("*") if path.is_file()]
    assert {"audit.db", "0001.txt"} <= {path.name for path in kept}
    assert [path for path in kept if KEY[:8].encode() in path.read_bytes()] == []
    assert (work / "short.txt").read_text() == f"key = {KEY}\n", "only what is shown is masked"
