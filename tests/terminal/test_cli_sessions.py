"""Tests of sessions as users have them: the real command, a scripted model, a terminal, a server on loopback."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from runner.messages import AssistantMessage, ImageBlock, TextBlock, ThinkingBlock, ToolCall, ToolResult
from runner.sessions.open import SessionTarget
from tests.support import forked_agent
from tests.support.model_server import Delta, ModelServer, calling, serving
from tests.support.session_files import run_of, user, verdict
from tests.support.session_harness import AGENT, SessionHarness
from tests.support.terminal_screen import ScreenTerminal


@pytest.fixture
def harness(tmp_path: Path) -> SessionHarness:
    return SessionHarness(tmp_path)


@pytest.mark.thorough
def test_a_run_is_kept_gone_on_with_and_forked(harness: SessionHarness) -> None:
    assert harness.run("look around").returncode == 0
    (first,) = harness.list()
    assert (first["first"], first["prompts"], first["turns"]) == ("look around", 1, 2)
    again = harness.run("-c", "and again")
    assert again.returncode == 0, again.stderr
    assert "resumed    " in again.stderr
    assert "look around" in again.stderr
    assert [(each["id"], each["prompts"]) for each in harness.list()] == [(first["id"], 2)]
    forked = harness.run("--fork", str(first["id"])[:5], "another way")
    assert forked.returncode == 0, forked.stderr
    assert "forked " in forked.stderr
    newest, old = harness.list()
    assert (newest["forked_from"], newest["prompts"], old["prompts"]) == (first["id"], 3, 2)
    resumed = harness.run(f"--resume={old['id']}", "--json", "with events")
    event = next(json.loads(line) for line in resumed.stdout.splitlines() if '"session_resumed"' in line)
    assert (event["session"], event["prompts"], event["last"]) == (old["id"], 2, "and again")


def attempt(harness: SessionHarness, id: str) -> None:
    """Store a session whose prompt was never answered."""
    journal = SessionTarget(harness.store).journal(run_of(harness.store, id), None)
    journal.message(user("an attempt"))
    assert journal.close() is None


def test_a_list_has_the_sessions_with_an_answer_by_the_time_that_it_prints(harness: SessionHarness) -> None:
    """An attempt without an answer is neither listed nor continued, unless there is nothing else."""
    attempt(harness, "1" * 16)
    assert harness.list() == []
    assert "1 session without an answer: agent sessions list --all" in harness.agent("sessions").stdout
    for prompt in ("the first", "the second"):
        assert harness.run(prompt).returncode == 0
    attempt(harness, "2" * 16)
    assert [each["first"] for each in harness.list()] == ["the second", "the first"]
    assert len(harness.list("--all")) == 4
    assert "the second" in harness.run("-c", "and again").stderr
    first = next(str(each["id"]) for each in harness.list() if each["first"] == "the first")
    os.utime(harness.store.path(first), (2_000_000_000, 2_000_000_000))
    shown = harness.agent("sessions").stdout.splitlines()
    assert shown[0].startswith(f"{first[:8]}  2033-05-18 03:33 UTC  2 requests   the first"), shown


def test_without_a_session_nothing_is_written(harness: SessionHarness) -> None:
    assert harness.run("--no-session", "look around").returncode == 0
    assert harness.list() == []
    assert not (harness.state / "sessions").exists()


# fmt: off
MISTAKES: list[tuple[tuple[str, ...], str, str]] = [
    (("-c", "x"),                          "no session to continue",    "no session yet"),
    (("--resume", "--unattended", "x"),    "no session is named",       "there is no user to pick one"),
    (("--resume=77777777", "x"),           "there is no session",       "an id of nothing"),
    (("--resume=../../etc", "x"),          "is not a session ID",       "an id is no path"),
    (("--fork", "x/y", "x"),               "is not a session ID",       "neither is that of a fork"),
    (("-c", "--no-session", "x"),          "exclude each other",   "two that exclude each other"),
    (("-c", "--fork", "77777777", "x"),    "exclude each other",   "the same"),
]
# fmt: on


@pytest.mark.parametrize(("words", "told", "why"), MISTAKES, ids=[why for *_, why in MISTAKES])
def test_mistakes_are_usage_errors_and_nothing_is_asked_of_a_model(
    harness: SessionHarness, words: tuple[str, ...], told: str, why: str
) -> None:
    done = harness.run(*words)
    assert done.returncode == 2, why
    assert told in done.stderr
    assert done.stdout == ""


@pytest.mark.threat("T72")
def test_the_mode_of_a_session_is_shown_and_never_taken(harness: SessionHarness) -> None:
    """In `dangerously` then, in `default` now: what was free then is denied now."""
    script = harness.base / "writes.toml"
    script.write_text('[[turn]]\ncalls = [{ name = "bash", arguments = { command = "touch made" } }]\n')
    first = harness.agent("run", "--model", f"scripted:{script}", "--mode", "dangerously", "write")
    assert first.returncode == 0, first.stderr
    (harness.work / "made").unlink()
    again = harness.agent("run", "--model", f"scripted:{script}", "-c", "write")
    assert again.returncode == 3
    assert "mode was dangerously, is default" in again.stderr
    assert not (harness.work / "made").exists()


def test_a_session_of_another_workspace_is_refused_and_can_be_forked(harness: SessionHarness) -> None:
    harness.run("look around")
    elsewhere = harness.base / "elsewhere"
    elsewhere.mkdir()
    id = str(harness.list()[0]["id"])
    refused = harness.agent("run", "--model", harness.model, f"--resume={id}", "x", cwd=elsewhere)
    assert refused.returncode == 2
    assert str(harness.work) in refused.stderr
    forked = harness.agent("run", "--model", harness.model, "--json", "--fork", id, "x", cwd=elsewhere)
    assert forked.returncode == 0
    event = next(json.loads(line) for line in forked.stdout.splitlines() if '"session_resumed"' in line)
    assert event["changes"] == [f"workspace was {harness.work}, is {elsewhere}"]
    assert len(harness.list("--all")) == 2


def _into(harness: SessionHarness, sink: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, unbuffered, with a full disk behind its stdout, or a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    target = os.open(sink, os.O_WRONLY) if sink else writer
    environ = harness.environ | {"PYTHONUNBUFFERED": "1"}
    try:
        return forked_agent.run(
            [AGENT, *words], cwd=harness.work, env=environ, stdout=target, stderr=subprocess.PIPE, text=True
        )
    finally:
        for handle in {writer, target}:
            os.close(handle)


def test_show_and_export_say_what_was_done(harness: SessionHarness) -> None:
    harness.run("look around")
    id = str(harness.list()[0]["id"])
    shown = harness.agent("sessions", "show", id[:4]).stdout
    for told in ("look around", "I look.", "$ ls", "allow (read)", "one.txt", "There is one file.", "agent audit show"):
        assert told in shown
    types = [json.loads(line)["type"] for line in harness.agent("sessions", "show", "--json", id).stdout.splitlines()]
    assert types == ["session", "run", "flow", "flow", "message", "message", "call", "message", "message", "end"]
    assert harness.agent("sessions", "export", id, "--format", "jsonl").stdout == harness.store.path(id).read_text()
    with harness.store.path(id).open("a") as file:
        file.write(
            '{"id":"11","parentId":"10","time":"2026-11-22T11:30:41.437Z","type":"notice","text":"one:\\n\\ntwo \\u001b[2J"}\n'
        )
    assert "] one:\n    \n    two ␛[2J\n" in harness.agent("sessions", "show", id).stdout, (
        "as lines that begin nothing new"
    )
    for words in (("show", id), ("export", id)):
        for sink, code, said in (("/dev/full", 1, "the output could not be written"), ("", 141, "")):
            done = _into(harness, sink, "sessions", *words)
            assert (done.returncode, said in done.stderr, "cannot be read" in done.stderr) == (code, True, False), sink
    out = harness.base / "talk.html"
    assert harness.agent("sessions", "export", id, "--format", "html", "-o", str(out)).returncode == 0
    assert "There is one file." in out.read_text()
    again = harness.agent("sessions", "export", id, "-o", str(out))
    assert again.returncode == 2, "nothing is written over"
    assert "exists" in again.stderr


def test_one_of_a_later_version_is_said_to_be_that_wherever_it_is_read(harness: SessionHarness) -> None:
    harness.run("look around")
    id = str(harness.list()[0]["id"])
    path = harness.store.path(id)
    path.write_text(path.read_text().replace('"version":1', '"version":9', 1))
    assert harness.list()[0]["broken"] == "its format is 9, and this version reads 1"
    for words in (("sessions", "show", id), ("sessions", "export", id)):
        done = harness.agent(*words)
        assert (done.returncode, "its format is 9" in done.stderr, done.stdout) == (2, True, ""), words
    for words in (("--fork", id, "x"), ("-c", "x")):
        done = harness.run(*words)
        assert (done.returncode, "its format is 9" in done.stderr, done.stdout) == (2, True, ""), words


def test_removing_takes_the_file_and_its_outputs_and_no_other(harness: SessionHarness) -> None:
    long = harness.base / "long.toml"
    long.write_text('[[turn]]\ncalls = [{ name = "bash", arguments = { command = "seq 99999" } }]\n')
    for prompt in ("one", "two"):
        harness.agent("run", "--model", f"scripted:{long}", "--mode", "trust-project", prompt)
    one, two = sorted(harness.list(), key=lambda each: str(each["first"]))
    assert sorted(os.listdir(harness.state / "outputs")) == sorted([str(one["id"]), str(two["id"])])
    done = harness.agent("sessions", "rm", str(one["id"]))
    assert done.returncode == 0, done.stderr
    assert [each["id"] for each in harness.list()] == [two["id"]]
    assert os.listdir(harness.state / "outputs") == [two["id"]]
    assert "there was no session to remove" in harness.agent("sessions", "rm", "--older-than", "1d").stdout
    os.utime(harness.store.path(str(two["id"])), (1, 1))
    assert "removed" in harness.agent("sessions", "rm", "--older-than", "1d").stdout
    assert harness.list() == []
    assert harness.agent("sessions", "rm").returncode == 2


def test_one_that_is_in_use_stays_and_its_process_is_named(harness: SessionHarness) -> None:
    harness.run("look around")
    id = str(harness.list()[0]["id"])
    with harness.store.open(id):
        for words in (("run", "--model", harness.model, "-c", "x"), ("sessions", "rm", id)):
            refused = harness.agent(*words)
            assert refused.returncode in (1, 2)
            assert f"process {os.getpid()} uses it" in refused.stderr
            assert f"agent --fork {id[:8]}" in refused.stderr
        assert harness.run("--fork", id, "x").returncode == 0, "a copy can be made of it meanwhile"
    assert harness.run("-c", "x").returncode == 0


# ---- exports of hostile text

EVIL = (
    "</pre></style></title><script>document.title='PWNED'</script><img src=x onerror=alert(1)>"
    '<meta http-equiv=refresh content="0;url=//x"> " onload="alert(1) \x1b[31m\x1b]0;t\x07 \u202e \u200b ``` ```` ~~~ '
    "[x](javascript:alert(1)) ![x](http://127.0.0.1:9/) <!-- \ud800 &lt;b&gt;"
)
ALLOWED = {
    *("html", "head", "meta", "title", "style", "body", "h1", "table", "tr", "th", "td", "p", "time", "section"),
    *("header", "b", "pre", "dl", "dt", "dd", "details", "summary", "img", "div", "span", "code"),
}


@pytest.fixture
def hostile(harness: SessionHarness) -> SessionHarness:
    """Every text of a session, from everybody who can put one in, is EVIL."""
    run = run_of(harness.store, cwd=f"/w{EVIL}", model=f"scripted:{EVIL}")
    journal = SessionTarget(harness.store).journal(run, None)
    journal.message(user(EVIL))
    blocks = (
        ThinkingBlock(EVIL),
        TextBlock(f"model {EVIL}"),
        ToolCall("a", "bash", {"command": EVIL}),
        ToolCall("b", EVIL, None, EVIL),
    )
    journal.message(AssistantMessage(blocks))
    journal.call(verdict("a", EVIL, EVIL, answer=False))
    journal.result(0, ToolResult("a", (TextBlock("\n".join([EVIL] * 40)), ImageBlock("image/png", "iVBORw0KGgo="))))
    assert journal.close() is None
    return harness


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {(name, value or "") for name, value in attrs}


@pytest.mark.threat("T74")
def test_a_page_holds_no_markup_but_ours(hostile: SessionHarness) -> None:
    page = Page()
    text = hostile.agent("sessions", "export", "0123", "--format", "html").stdout
    page.feed(text)
    assert page.tags <= ALLOWED
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("href", "action", "srcdoc")]
    assert [value for name, value in page.attributes if name == "src"] == ["data:image/png;base64,iVBORw0KGgo="]
    assert "default-src 'none'" in text
    assert text.count("<script") == text.count("onerror=alert(1)>") == 0
    assert "PWNED" in text, "it is there, as text"
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e\u200b]", text)


@pytest.mark.threat("T74")
def test_no_text_of_a_session_is_markdown(hostile: SessionHarness) -> None:
    text = hostile.agent("sessions", "export", "0123").stdout
    fence, outside = "", []
    for row in text.splitlines():
        if fence:
            fence = "" if row == fence else fence
        elif opened := re.fullmatch(r"(`{3,})text", row):
            fence = opened[1]
        else:
            outside.append(row)
    assert fence == "", "every fence is closed"
    ours = r"# Session|### (You|Model|Thinking|Call|Note) \([0-9 :-]+ UTC\)|!\[an image\]\(data:image/png;base64,iVBORw0KGgo=\)|"
    assert [row for row in outside if not re.fullmatch(ours, row)] == []
    assert "PWNED" in text


@pytest.mark.threat("T74")
def test_no_text_of_a_session_drives_the_terminal(hostile: SessionHarness) -> None:
    for words in (("list",), ("show", "0123")):
        shown = hostile.agent("sessions", *words).stdout
        assert "PWNED" in shown or words == ("list",)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e\u200b]", shown)


# ---- what reaches a model


def answer(turn: int, headers: str, body: bytes) -> Delta:
    """Calls a tool once, then answers."""
    asked = json.loads(body)["messages"][-1]["role"] == "user"
    return calling("ls") if asked else {"content": "one file"}


@pytest.fixture
def model() -> Iterator[ModelServer]:
    usage = {"prompt_tokens": 1000, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 600}}
    with serving(answer, usage) as server:
        yield server


def test_the_model_is_told_what_was_said_before(harness: SessionHarness, model: ModelServer) -> None:
    prices = harness.base / "prices.toml"
    prices.write_text('[price."openai:m"]\ninput = 2\noutput = 10\ncache_read = 0.5\n')
    for words in (("look around",), ("-c", "--config", str(prices), "and again")):
        done = harness.agent("run", "--model", "openai:m", *words, OPENAI_BASE_URL=model.url)
        assert done.returncode == 0, done.stdout + done.stderr
    told = [json.loads(body)["messages"] for _, body in model.requests]
    roles = [[message["role"] for message in messages[1:]] for messages in told]
    turn = ["user", "assistant", "tool", "assistant"]
    assert roles == [turn[:1], turn[:3], [*turn, "user"], [*turn, *turn[:3]]]
    assert told[1][1:4] == told[2][1:4]
    id = str(harness.list()[0]["id"])
    used = [json.loads(line) for line in harness.agent("sessions", "show", "--json", id).stdout.splitlines()]
    usage = [entry for entry in used if entry["type"] == "usage"]
    counts = [(each["input"], each["output"], each["cache_read"], each["cache_write"]) for each in usage]
    assert counts == [(400, 20, 600, 0)] * 4
    assert [each["cost"] for each in usage] == [None, None, 0.0013, 0.0013], "a price that nobody said is not guessed"
    assert "cost 0.0026, without 2 of 4 replies" in harness.agent("sessions", "show", id).stdout


# ---- on a real terminal


def _talk(harness: SessionHarness, *words: str) -> ScreenTerminal:
    return ScreenTerminal(harness.work, harness.environ, AGENT, "--plain", "--model", harness.model, *words)


def test_going_on_at_a_terminal(harness: SessionHarness) -> None:
    window = _talk(harness)
    try:
        window.until("/quit to leave")
        window.type("look around", "Enter")
        window.until("There is one file.")
        window.type("/quit", "Enter")
        screen = window.until("LEFT 0")
        assert f"to continue: agent --resume {str(harness.list()[0]['id'])[:8]}" in screen
    finally:
        window.close()
    window = _talk(harness, "-c")
    try:
        screen = window.until("/quit to leave")
        for told in ("resumed ", "1 prompt, 2 requests", "> look around", "\n  $ ls  done\n", "\nThere is one file."):
            assert told in screen
        window.type("go on", "Enter")
        window.until("done (2 requests)")
        window.leave()
    finally:
        window.close()
    assert [each["prompts"] for each in harness.list()] == [2]


def test_the_picker(harness: SessionHarness) -> None:
    for prompt in ("the first thing", "the second thing"):
        harness.run(prompt)
    window = _talk(harness, "--resume")
    try:
        screen = window.until("q: quit")
        assert screen.index("the second thing") < screen.index("the first thing"), "the latest is first"
        window.type("7", "Enter")
        window.until("`7` is not a number or an id from this list")
        window.type("2", "Enter")
        screen = window.until("/quit to leave")
        assert "\n> the first thing\n" in screen
        window.type("/quit", "Enter")
        window.until("LEFT 0")
    finally:
        window.close()
    window = _talk(harness, "--resume")
    try:
        window.until("q: quit")
        window.type("q", "Enter")
        window.until("LEFT 130")
    finally:
        window.close()
    assert len(harness.list()) == 2


def test_looking_at_a_session_and_leaving_writes_nothing(harness: SessionHarness) -> None:
    harness.run("look around")
    path = harness.store.path(str(harness.list()[0]["id"]))
    before = path.read_bytes()
    window = _talk(harness, "-c")
    try:
        window.until("/quit to leave")
        window.leave()
    finally:
        window.close()
    assert path.read_bytes() == before


def test_a_session_that_cannot_be_kept_ends_the_run_before_anything_is_done(harness: SessionHarness) -> None:
    harness.state.mkdir(mode=0o700)
    (harness.state / "sessions").write_text("in the way")
    script = harness.base / "writes.toml"
    script.write_text('[[turn]]\ncalls = [{ name = "bash", arguments = { command = "touch made" } }]\n')
    done = harness.agent("run", "--model", f"scripted:{script}", "--mode", "trust-project", "--json", "write")
    assert done.returncode == 1
    problem = next(json.loads(line) for line in done.stdout.splitlines() if '"type":"error"' in line)["problem"]
    assert "could not be written" in problem["what"]
    assert "--no-session" in problem["fix"]
    assert not (harness.work / "made").exists()
    again = harness.agent("run", "--model", f"scripted:{script}", "--mode", "trust-project", "--no-session", "write")
    assert again.returncode == 0
    assert (harness.work / "made").exists()
