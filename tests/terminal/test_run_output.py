"""Tests of the input and output of `agent run`: standard input behind a prompt, and the answer alone on stdout."""

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.cli_harness import AGENT, CliHarness
from tests.support.terminal import Terminal

LONG = "I look at the folder first, in a sentence that is longer than the eighty columns of a terminal. " * 2
ANSWER = "The answer is **42**.\nA\ttab, and an é."
DENIED = {"text": LONG, "calls": [{"name": "bash", "arguments": {"command": "curl https://example.com"}}]}
ASKED = {"text": "I write.", "calls": [{"name": "bash", "arguments": {"command": "touch made"}}]}
LAST = {"text": ANSWER}


@pytest.fixture
def place(tmp_path: Path) -> CliHarness:
    made = CliHarness(tmp_path)
    made.work.mkdir()
    (tmp_path / "home").mkdir()
    return made


def model(place: CliHarness, *turns: dict[str, object]) -> str:
    (place.base / "script.json").write_text(json.dumps({"turn": turns}))
    return f"--model=scripted:{place.base}/script.json"


# fmt: off
FORMS: list[tuple[tuple[str, ...], str, str]] = [
    ((),                    "answer", "the default without a terminal"),
    (("--output", "text"),  "answer", "asked for"),
    (("--output", "full"),  "all",    "the transcript"),
    (("--output", "json"),  "events", "JSON"),
    (("--json",),           "events", "the short form of it"),
]
# fmt: on


@pytest.mark.parametrize(("words", "printed", "why"), FORMS, ids=[why for *_, why in FORMS])
def test_the_forms_of_the_output(place: CliHarness, words: tuple[str, ...], printed: str, why: str) -> None:
    done = place.agent("run", model(place, DENIED, LAST), "go", *words)
    assert done.returncode == 3, "an action was denied"
    if printed == "answer":
        assert done.stdout == f"{ANSWER}\n"
        assert ANSWER.splitlines()[0] not in done.stderr, "the answer is printed once"
        for text in (
            "workspace  ",
            "> go",
            LONG.strip(),
            "$ curl https://example.com",
            "denied   ",
            "done (2 requests",
        ):
            assert text in done.stderr, why
    elif printed == "all":
        assert done.stderr == ""
        for text in ("workspace  ", LONG.strip(), "denied   ", "The answer is **42**."):
            assert text in done.stdout, why
    else:
        events = [json.loads(line) for line in done.stdout.splitlines()]
        assert (events[-1]["type"], events[-1]["text"], done.stderr) == ("run_ended", ANSWER, "")


# fmt: off
ENDS: list[tuple[list[dict[str, object]], tuple[str, ...], int, str, str, str]] = [
    ([ASKED, LAST], ("--mode=trust-project", "--max-turns=1"), 5, "", "I write.", "a limit ends it after a call"),
    ([{"text": "Half of", "stop": "refusal"}], (), 1, "Half of\n", "the model declined", "a run that failed"),
    ([{"text": ""}], (), 0, "", "done (1 request)", "an empty answer"),
]
# fmt: on


@pytest.mark.parametrize(("turns", "words", "code", "out", "err", "why"), ENDS, ids=[why for *_, why in ENDS])
def test_an_answer_that_is_missing(
    place: CliHarness, turns: list[dict[str, object]], words: tuple[str, ...], code: int, out: str, err: str, why: str
) -> None:
    (place.work / "last.txt").write_text("of an earlier run")
    done = place.agent("run", model(place, *turns), "--last-message", "last.txt", *words, "go")
    assert (done.returncode, done.stdout) == (code, out), why
    assert err in done.stderr
    assert (place.work / "last.txt").read_text() == out, "no answer of an earlier run stays"


# fmt: off
MISTAKES: list[tuple[tuple[str, ...], str]] = [
    (("--output", "jsn"),                           "did you mean `json`?"),
    (("--output", "full", "--json"),                "exclude each other"),
    (("--last-message", ""),                        "names no file"),
    (("--last-message", "folder"),                  "cannot be written"),
    (("--last-message", "no/such/x"),               "no such file or directory"),
    (("--last-message", "link"),                    "leads through the link"),
    (("--input", "json", "--json", "--last-message", "x"), "exclude each other"),
]
# fmt: on


@pytest.mark.parametrize(("words", "said"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_mistakes_are_told_before_the_model_is_asked(place: CliHarness, words: tuple[str, ...], said: str) -> None:
    (place.work / "folder").mkdir()
    (place.base / "victim").write_text("mine")
    (place.work / "link").symlink_to(place.base / "victim")
    done = place.agent("run", model(place, ASKED, LAST), "--mode=trust-project", "go", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert not (place.work / "made").exists()
    assert (place.base / "victim").read_text() == "mine"


def test_the_answer_in_a_file_is_exact_and_no_command_sees_the_file_before(place: CliHarness) -> None:
    odd = "\x1b[31mred\u202e \u00a0"
    look = {"calls": [{"name": "bash", "arguments": {"command": "ls -A > seen"}}]}
    words = ("--mode=trust-project", "--last-message", "answer.md", "go")
    done = place.agent("run", model(place, look, {"text": odd}), *words)
    assert done.returncode == 0
    assert (place.work / "answer.md").read_text() == f"{odd}\n"
    assert done.stdout == "␛[31mred<U+202E> <U+00A0>\n", "what is printed controls no terminal"
    assert (place.work / "seen").read_text() == "seen\n"
    assert sorted(os.listdir(place.work)) == ["answer.md", "seen"]


# ---- standard input behind the prompt


def prompted(place: CliHarness, stdin: bytes | None, *words: str, command: str = "run") -> tuple[str, str]:
    """Return the text that is sent to the model, and the text that is shown of it."""
    done = place.agent(command, model(place, LAST), "--json", *words, stdin=stdin)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    found = next(event for event in events if event["type"] == "prompted")
    return found["text"], found["typed"]


# fmt: off
INPUTS: list[tuple[bytes | None, str, str, str]] = [
    (b"+ a line\n",        "review\n\nStandard input:\n\n```\n+ a line\n```", "review\n[standard input: 1 line]", "a diff"),
    (b"```sh\nls\n```\n",  "review\n\nStandard input:\n\n````\n```sh\nls\n```\n````", "review\n[standard input: 3 lines]",
     "a fence that the input cannot close"),
    (b"",                  "review", "", "an empty pipe"),
    (b" \n",               "review", "", "blanks"),
    (None,                 "review", "", "/dev/null"),
]
# fmt: on


@pytest.mark.parametrize("command", ["run", "ci"])
@pytest.mark.parametrize(("stdin", "text", "shown", "why"), INPUTS, ids=[why for *_, why in INPUTS])
def test_standard_input_is_appended_to_the_prompt(
    place: CliHarness, stdin: bytes | None, text: str, shown: str, why: str, command: str
) -> None:
    assert prompted(place, stdin, "review", command=command) == (text, shown), why


def test_standard_input_is_appended_to_a_file_and_is_the_prompt_alone(place: CliHarness) -> None:
    (place.work / "task.md").write_text("review")
    assert prompted(place, b"x", "--prompt-file", "task.md")[0].startswith("review\n\nStandard input:\n\n```\nx\n")
    assert prompted(place, b"do it", "--prompt-file", "/dev/stdin") == ("do it", "")
    assert prompted(place, b"do it") == ("do it", "")


# fmt: off
UNUSABLE: list[tuple[bytes, str]] = [
    (b"\xff\xfe",             "is not UTF-8"),
    (b"x" * ((1 << 20) + 1),  "longer than 1 MiB"),
    (b"x" * ((1 << 20) - 5),  "longer than 1 MiB"),  # with the prompt
]
# fmt: on


@pytest.mark.parametrize(("stdin", "said"), UNUSABLE, ids=["bytes", "too long", "too long with the prompt"])
def test_standard_input_that_cannot_be_used_is_told(place: CliHarness, stdin: bytes, said: str) -> None:
    done = place.agent("run", model(place, LAST), "review", stdin=stdin)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_key_on_standard_input_is_not_appended(place: CliHarness) -> None:
    words = ("run", model(place, LAST), "--api-key-stdin", "--json", "review")
    done = place.agent(*words, stdin=b"sk-a-key-of-a-test-1234567890\n")
    assert "takes no API key" in done.stderr, "the key was read as a key"
    assert '"prompted"' not in done.stdout


def test_a_silent_pipe_is_waited_for_and_the_user_is_told(place: CliHarness) -> None:
    words = [AGENT, "run", model(place, LAST), "review"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, cwd=place.work, env=place.environ, **pipes) as run:  # type: ignore[call-overload]  # streams
        told = run.stderr.readline().decode()
        out, err = run.communicate(b"late\n")
    assert "waiting for standard input, which is appended to the prompt" in told
    assert (run.returncode, out.decode()) == (0, f"{ANSWER}\n")
    assert "[standard input: 1 line]" in err.decode()


# ---- at a terminal


@pytest.fixture
def shell(place: CliHarness) -> Iterator[Callable[[str], Terminal]]:
    with ExitStack() as over:

        def started(line: str) -> Terminal:
            made = Terminal(["/bin/sh", "-c", line], place.work, {**place.environ, "TERM": "xterm"})
            over.callback(made.close)
            return made

        yield started


def test_at_a_terminal_everything_is_shown_and_a_redirected_answer_is_alone(
    place: CliHarness, shell: Callable[[str], Terminal]
) -> None:
    run = f"{AGENT} run {shlex.quote(model(place, ASKED, LAST))} go"
    whole = shell(run)
    whole.until("[y/N")  # text typed before the question is shown is discarded
    whole.type("y\n")
    assert whole.end() == 0
    assert "The answer is **42**." in whole.seen
    (place.work / "made").unlink()

    apart = shell(f"{run} > answer.txt")
    apart.until("[y/N")
    apart.type("y\n")
    assert apart.end() == 0
    assert (place.work / "answer.txt").read_text() == f"{ANSWER}\n", (
        "neither the question nor its answer is in the file"
    )
    assert "done (2 requests)" in apart.seen
    assert (place.work / "made").exists()


def test_an_answer_that_nobody_reads_ends_the_program_quietly(place: CliHarness) -> None:
    for redirected in ("", "2>&1"):
        line = f"{AGENT} run {shlex.quote(model(place, DENIED, LAST))} go {redirected} | true; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", line], cwd=place.work, env=place.environ, capture_output=True, text=True)
        assert done.stdout == "141\n"
        assert "agent:" not in done.stderr
        assert "Traceback" not in done.stderr
