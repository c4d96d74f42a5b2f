"""Tests of `agent policy judge`: one answer per line, at once, for any contents of the lines."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support import forked_agent
from tests.support.agent_program import AGENT


def start(cwd: Path, *words: str) -> subprocess.Popen[bytes]:
    home, cwd = cwd / "home", cwd / "work"
    home.mkdir(exist_ok=True)
    cwd.mkdir(exist_ok=True)
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"}
    return forked_agent.Process(
        [AGENT, "policy", "judge", *words],
        env=environ, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    )  # fmt: skip


def judged(cwd: Path, text: bytes, *words: str) -> tuple[int, list[dict[str, object]], str]:
    with start(cwd, *words) as process:
        out, err = process.communicate(text)
    return process.returncode, [json.loads(line) for line in out.splitlines()], err.decode()


def test_an_answer_comes_before_the_next_question_is_written(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number, (script, verdict) in enumerate([("ls", "allow"), ("make", "ask"), ("cat a | wc -l", "allow")]):
            process.stdin.write(json.dumps({"id": number, "cmd": script}).encode() + b"\n")
            answer = json.loads(process.stdout.readline())
            assert (answer["id"], answer["verdict"]) == (number, verdict)
            assert set(answer) == {"id", "verdict", "tiers", "reasons"}
            assert set(answer["reasons"][0]) == {"tier", "text", "rule", "span"}
        process.stdin.close()
        assert process.wait() == 0


# the line, verdict, a tier of the answer, why
LINES = [
    (b'{"cmd": "ls \xff\xfe"}', "ask", "unknown", "bytes that are no UTF-8 are no certain text"),
    (b'{"cmd": "ls \\ud800"}', "ask", "unknown", "nor is half a character"),
    (b'{"cmd": "ls\\u0000rm -rf ."}', "ask", "unknown", "a NUL is no text"),
    (b'{"cmd": "\\u001b[2Jls"}', "ask", "unknown", "nor is a control character"),
    (b'{"cmd": ""}', "allow", "read", "nothing to run"),
    (b'{"cmd": "ls", "other": [1, {"a": 2}]}', "allow", "read", "what else a line says is nobody's business"),
    (b'  {"cmd": "ls"}  \r', "allow", "read", "blanks around it"),
    (json.dumps({"cmd": "echo " + "a" * 1_000_000}).encode(), "ask", "unknown", "a megabyte is answered"),
    (json.dumps({"cmd": "(" * 100_000}).encode(), "ask", "unknown", "and deep nesting"),
    (json.dumps({"cmd": "\U0001f600" * 200_000}).encode(), "ask", "unknown", "and long escapes"),
]


@pytest.mark.parametrize(("line", "verdict", "tier", "why"), LINES, ids=[row[3] for row in LINES])
def test_odd_lines_are_answered(line: bytes, verdict: str, tier: str, why: str, tmp_path: Path) -> None:
    # `--mode default` here and no terminal: the answer is what a person would be asked
    code, answers, err = judged(tmp_path, line + b"\n", "--mode", "default")
    assert (code, err) == (0, ""), why
    assert [(answer["verdict"], answer["tiers"][0]) for answer in answers] == [(verdict, tier)], why  # type: ignore[index]  # JSON


# fmt: off
NO_QUESTIONS = [
    (b'{"cmd": "ls", "cmd": "rm -rf ~"}', "one name with two values"),
    (b'{"id": NaN, "cmd": "ls"}',         "not JSON, though Python takes it"),
    (b'{"id": 1e999, "cmd": "ls"}',       "a number that no answer can repeat"),
    (b'{"id": {"a": 1}, "cmd": "ls"}',    "an id that is neither text nor number"),
    (b'{"id": 1, "command": "ls"}',       "another name"),
    (b'{"cmd": ["ls"]}',                  "words where a script must be"),
    (b'\xef\xbb\xbf{"cmd": "ls"}',        "a byte order mark"),
    (b'{"cmd": "ls"} {"cmd": "rm"}',      "two on one line"),
    (b'9' * 5000,                         "a number too long to be one"),
]
# fmt: on


@pytest.mark.parametrize(("line", "why"), NO_QUESTIONS, ids=[row[1] for row in NO_QUESTIONS])
def test_what_is_no_question_ends_it_and_what_came_before_is_answered(line: bytes, why: str, tmp_path: Path) -> None:
    code, answers, err = judged(tmp_path, b'{"id": 7, "cmd": "ls"}\n\n' + line + b'\n{"id": 8, "cmd": "ls"}\n')
    assert (code, [answer["id"] for answer in answers]) == (2, [7]), why
    assert "line 3 of standard input" in err, why


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    code, answers, err = judged(tmp_path, b'{"cmd": "' + b"a" * (17 << 20))
    assert (code, answers) == (2, [])
    assert "line 1 of standard input cannot be judged" in err


def test_the_mode_decides(tmp_path: Path) -> None:
    line = b'{"id": 1, "cmd": "make"}\n'
    found = {
        mode: judged(tmp_path, line, "--mode", mode)[1][0]["verdict"]
        for mode in ("plan", "default", "trust-project", "dont-ask")
    }
    assert found == {"plan": "deny", "default": "ask", "trust-project": "allow", "dont-ask": "allow"}
    assert judged(tmp_path, line, "--mode", "default", "--unattended")[1][0]["verdict"] == "deny"


def test_many_lines_stream_with_little_memory(tmp_path: Path) -> None:
    text = b"".join(b'{"id": %d, "cmd": "git log -%d | head"}\n' % (number, number) for number in range(3000))
    code, answers, _ = judged(tmp_path, text)
    assert (code, [answer["id"] for answer in answers]) == (0, list(range(3000)))
    assert {answer["verdict"] for answer in answers} == {"allow"}


# the rule, the verdict that it makes, the words that come first, why
RULED = [
    ('verdict = "ask"\nrun = ["ls"]\nwhy = "look"', "deny", "asks before `ls`: look", "what asks, where nobody can answer"),
    ('verdict = "deny"\nrun = ["ls"]\nwhy = "no"', "deny", "denies `ls`: no", "what denies"),
    ('verdict = "allow"\nrun = ["make"]\nwhy = "ours"', "allow", "allowed by your rule", "what allows"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "verdict", "said", "why"), RULED, ids=[row[3] for row in RULED])
def test_the_rule_that_decided_comes_first(rule: str, verdict: str, said: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(f"[[rule]]\n{rule}\n")
    script = "make" if verdict == "allow" else "ls"
    question = json.dumps({"id": 1, "cmd": script}).encode()
    code, answers, _ = judged(tmp_path, question, "--unattended", "--config", str(tmp_path / "r.toml"))
    assert (code, answers[0]["verdict"]) == (0, verdict), why
    first = answers[0]["reasons"][0]  # type: ignore[index]  # parsed JSON
    assert said in first["text"], why
    assert first["rule"] == f"{tmp_path / 'r.toml'}:1"
