"""Tests of `agent acp` over its pipes: sessions, prompts, questions, settings, commands, cancelling and loading."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.editor_client import Answerer, EditorClient, bash, place, select
from tests.support.layers import overlays_work

pytest.importorskip("acp")  # an extra

WRITES = bash("echo hi > made")
SLEEPS = bash("echo begun; python3 -c 'import time; time.sleep(600)'")
EDIT = 'calls = [{ name = "edit", arguments = { path = "a.txt", old_string = "one", new_string = "two" } }]'
READ = 'calls = [{ name = "read", arguments = { path = "a.txt" } }]'
PLAN = 'calls = [{ name = "propose_plan", arguments = { plan = "1. write" } }]'
CHOICES = (
    'calls = [{ name = "ask_user", arguments = { questions = [{ title = "Colour", question = "Which colour?", '
    'choices = [{ label = "red" }, { label = "blue" }] }] } }]'
)


def test_a_session_from_the_first_message_to_the_end(tmp_path: Path) -> None:
    talk = place(tmp_path, 'thinking = "hm"\ntext = "I write."\n' + WRITES)
    with EditorClient(talk, answer=select("yes")) as editor:
        hello = editor.hello
        assert hello["protocolVersion"] == 1
        assert hello["agentCapabilities"]["promptCapabilities"] == {
            "image": True, "audio": False, "embeddedContext": True,
        }  # fmt: skip
        assert set(hello["agentCapabilities"]["sessionCapabilities"]) == {"list", "resume", "fork", "close"}
        made = editor.result("session/new", {"cwd": str(talk.work), "mcpServers": []})
        session = made["sessionId"]
        assert made["modes"]["currentModeId"] == "default"
        assert [each["id"] for each in made["configOptions"]] == ["mode", "model", "thinking"]
        done = editor.prompt(session, "go")
        assert done["stopReason"] == "end_turn"
        (asked,) = editor.asked
        assert asked["method"] == "session/request_permission"
        assert asked["params"]["sessionId"] == session
        text = json.dumps(asked["params"]["toolCall"]["content"])
        assert "network" in text, "the question has the Terms in words"
        assert "what each answer covers" in text
        assert (talk.work / "made").read_text() == "hi\n"
        (call,) = editor.of_kind("tool_call")
        assert (call["kind"], call["title"], call["status"]) == ("execute", "`$ echo hi > made`", "pending")
        changes = [each for each in editor.of_kind("tool_call_update") if each["toolCallId"] == call["toolCallId"]]
        assert [each.get("status") for each in changes] == ["in_progress", "completed"]
        assert [each["content"]["text"] for each in editor.of_kind("agent_thought_chunk")] == ["hm"]
        assert editor.told(session) == "I write.done"
        assert "mode" in [each["name"] for each in editor.of_kind("available_commands_update")[0]["availableCommands"]]
    rows = talk.audit()
    answers = [row["answer"] for row in rows if row.get("record") == "decided" or row.get("answer")]
    assert any(isinstance(each, dict) and each["by"] == "ACP client probe 1.0" for each in answers), answers


def test_an_edit_is_shown_as_a_diff_with_its_place(tmp_path: Path) -> None:
    talk = place(tmp_path, READ, EDIT)
    with EditorClient(talk, answer=select("a")) as editor:
        editor.prompt(editor.new(), "go")
        (asked,) = editor.asked
        (diff,) = [each for each in asked["params"]["toolCall"]["content"] if each["type"] == "diff"]
        path = str(talk.work / "a.txt")
        assert (diff["path"], diff["oldText"], diff["newText"]) == (path, "one\n", "two\n")
        assert [each["kind"] for each in editor.of_kind("tool_call")] == ["read", "edit"]
        assert [each["locations"][0]["path"] for each in editor.of_kind("tool_call")] == [path, path]
        assert [each["currentModeId"] for each in editor.of_kind("current_mode_update")] == ["accept-edits"]
    assert (talk.work / "a.txt").read_text() == "two\n"


@pytest.mark.parametrize(("option", "runs", "remembered"), [
    ("yes", True, 0), ("s", True, 1), ("p", True, 1), ("no", False, 0), ("d", False, 1), ("stop", False, 0),
])  # fmt: skip
def test_each_option_is_the_answer_with_that_scope(option: str, runs: bool, remembered: int, tmp_path: Path) -> None:
    talk = place(tmp_path, WRITES)
    with EditorClient(talk, answer=select(option)) as editor:
        session = editor.new()
        done = editor.prompt(session, "go")
        assert done["stopReason"] == ("cancelled" if option == "stop" else "end_turn")
        assert (talk.work / "made").exists() is runs
        editor.prompt(session, "/grants")
        assert editor.told(session).count("made by a redirection") >= remembered
        assert ("made by a redirection" in editor.told(session)) is bool(remembered)


def select_each(*options: str) -> Answerer:
    """Return the answers that select these options, one after the other; the last one also answers later requests."""
    left = list(options)
    return lambda asked: select(left.pop(0) if len(left) > 1 else left[0])(asked)


TWO = bash('python3 -c \'open("b", "w"); open("c", "w")\'; echo said')
ONE = bash('python3 -c \'open("b", "w")\'')


@pytest.mark.threat("T311")
@pytest.mark.skipif(not overlays_work(), reason="this user cannot mount an overlay")
@pytest.mark.parametrize(("turn", "options", "left", "stop"), [
    (TWO, ("try", "keep"), "bc", "end_turn"),
    (TWO, ("try", "choose", "no", "keep"), "c", "end_turn"),
    (TWO, ("try", "choose", "no", "no"), "", "end_turn"),
    (TWO, ("try", "choose", "keep", "yes"), "", "end_turn"),  # not offered: nothing is kept
    (TWO, ("try", "choose", "keep", "stop"), "", "cancelled"),
    (TWO, ("try", "run"), "bc", "end_turn"),
    (TWO, ("try", "no"), "", "end_turn"),
    (TWO, ("try", "yes"), "", "end_turn"),  # could mean the changes or one more run
    (TWO, ("try", "stop"), "", "cancelled"),
    (ONE, ("try", "choose"), "", "end_turn"),  # not offered for one change
    (bash("python3 -c 1"), ("try", "keep"), "", "end_turn"),
], ids=lambda value: " ".join(value) if isinstance(value, tuple) else "")  # fmt: skip
def test_a_command_is_tried_and_its_changes_are_decided(
    turn: str, options: tuple[str, ...], left: str, stop: str, tmp_path: Path
) -> None:
    talk = place(tmp_path, turn)
    with EditorClient(talk, answer=select_each(*options)) as editor:
        done = editor.prompt(editor.new(), "go")
        assert done["stopReason"] == stop
        assert [name for name in "bc" if (talk.work / name).exists()] == list(left)
        assert len(editor.asked) == len(options)
        first, second = (each["params"] for each in editor.asked[:2])
        assert [each["optionId"] for each in first["options"]][:2] == ["yes", "try"]
        named = {each["optionId"]: each["kind"] for each in second["options"]}
        assert named["keep"] == "allow_once"
        assert named["no"] == "reject_once"
        assert ("choose" in named) is (turn == TWO)
        if turn == TWO:
            text = json.dumps(second["toolCall"]["content"])
            assert "2 changes wait for your answer" in text
            assert "said" in text
        rows = [row["answer"] for row in talk.audit() if row.get("answer")]
    assert stop == "cancelled" or all(each["by"] == "ACP client probe 1.0" for each in rows)


@pytest.mark.threat("T317")
@pytest.mark.skipif(not overlays_work(), reason="this user cannot mount an overlay")
@pytest.mark.parametrize(("option", "kept"), [("keep", True), ("no", False), ("run", False)])
def test_commands_that_a_rule_tries_end_in_one_question(option: str, kept: bool, tmp_path: Path) -> None:
    talk = place(tmp_path, bash("python3 make.py b"), bash("python3 make.py c"))
    (talk.work / "make.py").write_text('import sys; open(sys.argv[1], "w")')
    settings = tmp_path / "config/ringfence"
    settings.mkdir(parents=True)
    rule = '[[rule]]\nverdict = "try"\nrun = ["python3", "make.py", "**"]\nwhy = "look first"\n'
    (settings / "config.toml").write_text(rule)
    with EditorClient(talk, answer=select(option)) as editor:
        editor.prompt(editor.new(), "go")
        (asked,) = editor.asked
        assert [each["optionId"] for each in asked["params"]["options"]] == ["keep", "choose", "no", "stop"]
        assert [(talk.work / name).exists() for name in "bc"] == [kept, kept]


def test_a_reason_reaches_the_model(tmp_path: Path) -> None:
    talk = place(tmp_path, WRITES, 'when = "use make instead"\ntext = "understood"')
    told = {"result": {"outcome": {"outcome": "selected", "optionId": "no", "_meta": {"feedback": "use make instead"}}}}
    with EditorClient(talk, answer=lambda asked: told) as editor:
        session = editor.new()
        editor.prompt(session, "go")
        assert "understood" in editor.told(session)


def test_several_sessions_have_their_own_folders_and_settings(tmp_path: Path) -> None:
    talk = place(tmp_path, WRITES)
    other = tmp_path / "other"
    other.mkdir()
    with EditorClient(talk, answer=select("yes")) as editor:
        first, second = editor.new(), editor.new(cwd=str(other))
        assert first != second
        editor.result("session/set_mode", {"sessionId": first, "modeId": "plan"})
        asked = editor.ask(second, {"type": "text", "text": "go"})
        assert editor.prompt(first, "go")["stopReason"] == "end_turn"
        assert editor.message(asked)["result"]["stopReason"] == "end_turn"
        assert not (talk.work / "made").exists()
        assert (other / "made").read_text() == "hi\n"
        assert {each["params"]["sessionId"] for each in editor.asked} == {second}


def test_cancel_ends_the_command_and_the_turn(tmp_path: Path) -> None:
    talk = place(tmp_path, SLEEPS)
    with EditorClient(talk, "--mode", "trust-project", answer=select("yes")) as editor:
        session = editor.new()
        asked = editor.ask(session, {"type": "text", "text": "go"})
        editor.until(lambda each: "begun" in json.dumps(each.get("update", {}).get("content", "")))
        editor.notify("session/cancel", {"sessionId": session})
        assert editor.message(asked)["result"]["stopReason"] == "cancelled"
        assert editor.prompt(session, "and now?")["stopReason"] == "end_turn"
    running = [
        entry for entry in os.listdir("/proc")
        if entry.isdigit() and b"time.sleep(600)" in _command_line(entry) and str(tmp_path).encode() in _cwd(entry)
    ]  # fmt: skip
    assert not running


def test_cancelling_twice_ends_a_command_of_the_user_and_an_attachment(tmp_path: Path) -> None:
    talk = place(tmp_path)
    (talk.work / ".env").write_text("KEY=1\n")
    with EditorClient(talk, "--mode", "trust-project", answer=lambda asked: None) as editor:
        session = editor.new()
        asked = editor.ask(session, {"type": "text", "text": "!echo begun; python3 -c 'import time; time.sleep(600)'"})
        editor.until(lambda each: "begun" in json.dumps(each.get("update", {}).get("content", "")))
        for _ in range(3):
            editor.notify("session/cancel", {"sessionId": session})
        assert editor.message(asked)["result"]["stopReason"] == "cancelled"
        link = {"type": "resource_link", "uri": f"file://{talk.work}/.env", "name": "x"}
        asked = editor.ask(session, {"type": "text", "text": "look"}, link)
        editor.until(
            lambda each: each.get("method") == "session/request_permission" or "not attached" in json.dumps(each)
        )
        for _ in range(3):
            editor.notify("session/cancel", {"sessionId": session})
        assert editor.message(asked)["result"]["stopReason"] in ("cancelled", "end_turn")
        assert editor.prompt(session, "and now?")["stopReason"] == "end_turn"


def _command_line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _cwd(pid: str) -> bytes:
    try:
        return os.readlink(f"/proc/{pid}/cwd").encode()
    except OSError:
        return b""


def test_a_prompt_during_another_is_refused(tmp_path: Path) -> None:
    talk = place(tmp_path, SLEEPS)
    with EditorClient(talk, "--mode", "trust-project", answer=select("yes")) as editor:
        session = editor.new()
        asked = editor.ask(session, {"type": "text", "text": "go"})
        editor.until(lambda each: "begun" in json.dumps(each.get("update", {}).get("content", "")))
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "more"}]}
        assert "a run is in progress" in editor.refusal("session/prompt", prompt)["message"]
        editor.notify("session/cancel", {"sessionId": session})
        assert editor.message(asked)["result"]["stopReason"] == "cancelled"


def test_a_session_is_listed_loaded_resumed_forked_and_closed(tmp_path: Path) -> None:
    talk = place(tmp_path, 'text = "I write."\n' + WRITES)
    with EditorClient(talk, answer=select("yes")) as editor:
        first = editor.new()
        editor.prompt(first, "remember this")
        told = [each["update"] for each in editor.updates]
        editor.result("session/close", {"sessionId": first})
        assert (
            "no open session" in editor.refusal("session/set_mode", {"sessionId": first, "modeId": "plan"})["message"]
        )
        (row,) = editor.result("session/list", {"cwd": str(talk.work)})["sessions"]
        assert (row["sessionId"], row["title"], row["cwd"]) == (first, "remember this", str(talk.work))
        assert editor.result("session/list", {"cwd": "/"})["sessions"] == []
        editor.updates.clear()
        loaded = editor.result("session/load", {"sessionId": first, "cwd": str(talk.work), "mcpServers": []})
        assert loaded["modes"]["currentModeId"] == "default"
        kinds = [each["update"]["sessionUpdate"] for each in editor.updates]
        assert kinds[:5] == [
            "user_message_chunk", "agent_message_chunk", "tool_call", "tool_call_update", "agent_message_chunk",
        ]  # fmt: skip
        assert editor.of_kind("user_message_chunk")[0]["content"]["text"] == "remember this"
        assert editor.told(first) == "I write.done"
        assert editor.of_kind("tool_call_update")[0]["status"] == "completed"
        assert [each for each in told if each["sessionUpdate"] == "tool_call"], "the replay has what was told before"
        copy = editor.result("session/fork", {"sessionId": first, "cwd": str(talk.work), "mcpServers": []})["sessionId"]
        assert copy != first
        assert editor.prompt(copy, "go on")["stopReason"] == "end_turn"
        editor.result("session/close", {"sessionId": first})
        editor.updates.clear()
        editor.result("session/resume", {"sessionId": first, "cwd": str(talk.work)})
        editor.until(lambda each: each.get("update", {}).get("sessionUpdate") == "available_commands_update")
        assert not editor.of_kind("user_message_chunk")
    with EditorClient(talk) as editor:
        editor.result("session/load", {"sessionId": first, "cwd": str(talk.work), "mcpServers": []})
        with EditorClient(talk) as second:
            asked = {"sessionId": first, "cwd": str(talk.work), "mcpServers": []}
            assert "is in use" in second.refusal("session/load", asked)["message"]


def test_settings_modes_and_commands(tmp_path: Path) -> None:
    talk = place(tmp_path)
    with EditorClient(talk) as editor:
        session = editor.new()
        chosen = {"sessionId": session, "configId": "thinking", "value": "high"}
        options = editor.result("session/set_config_option", chosen)["configOptions"]
        assert {each["id"]: each["currentValue"] for each in options}["thinking"] == "high"
        editor.result("session/set_config_option", {"sessionId": session, "configId": "mode", "value": "accept-edits"})
        assert editor.of_kind("current_mode_update")[-1]["currentModeId"] == "accept-edits"
        editor.prompt(session, "/mode plan")
        assert editor.of_kind("current_mode_update")[-1]["currentModeId"] == "plan"
        editor.prompt(session, "/permissions")
        assert "plan" in editor.told(session)
        editor.prompt(session, "/mode")
        assert "write the command with one of these values" in editor.told(session)
        editor.prompt(session, "/clear")
        assert "there is no command `/clear`" in editor.told(session)


def test_a_command_of_the_user_passes_the_gate(tmp_path: Path) -> None:
    talk = place(tmp_path)
    with EditorClient(talk, answer=select("no")) as editor:
        session = editor.new()
        editor.prompt(session, "!echo mine; cat a.txt")
        assert "mine\none" in json.dumps(editor.updates).replace("\\n", "\n")
        editor.prompt(session, "!echo x > made")
        assert not (talk.work / "made").exists()
        assert [each["optionId"] for each in editor.asked[0]["params"]["options"]] == ["yes", "no", "stop"]


def test_the_task_list_is_the_plan(tmp_path: Path) -> None:
    talk = place(tmp_path)
    with EditorClient(talk) as editor:
        session = editor.new()
        editor.prompt(session, "/tasks add read the code")
        (entry,) = editor.of_kind("plan")[-1]["entries"]
        assert (entry["content"], entry["status"]) == ("read the code", "pending")


def test_a_plan_is_begun_only_in_a_mode_that_was_offered(tmp_path: Path) -> None:
    talk = place(tmp_path, PLAN, WRITES)
    for option, mode in (("dangerously", "plan"), ("no", "plan"), ("accept-edits", "accept-edits")):
        with EditorClient(talk, "--mode", "plan", answer=select(option)) as editor:
            session = editor.new()
            editor.prompt(session, "go")
            asked = editor.asked[0]["params"]
            assert [each["optionId"] for each in asked["options"]] == [
                "default", "accept-edits", "trust-project", "no", "stop",
            ]  # fmt: skip
            assert asked["toolCall"]["kind"] == "switch_mode"
            modes = [each["currentModeId"] for each in editor.of_kind("current_mode_update")] or ["plan"]
            assert modes[-1] == mode


def last_of_its_kind(kind: str) -> Answerer:
    """Return the answer of an editor that selects the last option of a kind."""

    def answer(asked: dict[str, Any]) -> dict[str, object]:
        found = [each["optionId"] for each in asked["params"]["options"] if each["kind"] == kind]
        outcome = {"outcome": "selected", "optionId": found[-1]} if found else {"outcome": "cancelled"}
        return {"result": {"outcome": outcome}}

    return answer


@pytest.mark.threat("T311")
@pytest.mark.parametrize(("turns", "mode", "told"), [
    ((WRITES,), "default", "echo hi > made"),
    ((READ, EDIT), "default", "a.txt"),
    ((PLAN, WRITES), "plan", "1. write"),
    ((CHOICES,), "default", "Answer in your next prompt:\n> - Colour"),
], ids=["command", "edit", "plan", "choices"])  # fmt: skip
def test_an_editor_that_shows_kinds_gets_the_narrowest_option_of_each(
    turns: tuple[str, ...], mode: str, told: str, tmp_path: Path
) -> None:
    for kind in ("allow_once", "allow_always", "reject_once"):
        talk = place(tmp_path / kind, *turns)
        with EditorClient(talk, "--mode", mode, answer=last_of_its_kind(kind), begin=False) as editor:
            about = {"name": "CodeCompanion.nvim", "version": "1.0.0"}
            editor.result("initialize", {"protocolVersion": 1, "clientCapabilities": {}, "clientInfo": about})
            session = editor.new()
            editor.prompt(session, "go")
            for asked in editor.asked:
                assert [each["kind"] for each in asked["params"]["options"]] == ["allow_once", "reject_once"]
                assert asked["params"]["options"][0]["optionId"] != "try"
            assert bool(editor.asked) is (turns != (CHOICES,))
            assert told in editor.told(session)
            modes = [each["currentModeId"] for each in editor.of_kind("current_mode_update")] or [mode]
            assert modes[-1] == ("default" if kind == "allow_once" else mode)
            editor.prompt(session, "/grants")
            assert "by a redirection" not in editor.told(session)


def test_the_model_asks_the_user(tmp_path: Path) -> None:
    talk = place(tmp_path, CHOICES, 'when = "blue"\ntext = "blue it is"')
    with EditorClient(talk, answer=select("c2")) as editor:
        session = editor.new()
        editor.prompt(session, "go")
        assert "an answer allows no action" in editor.asked[0]["params"]["toolCall"]["title"]
        assert "blue it is" in editor.told(session)


def test_without_a_key_the_editor_is_told_what_to_do(tmp_path: Path) -> None:
    talk = place(tmp_path)
    with EditorClient(talk, "--model", "anthropic:claude-sonnet-5-5") as editor:
        (way,) = editor.hello["authMethods"]
        assert "agent auth login" in way["description"]
        refused = editor.refusal("session/new", {"cwd": str(talk.work), "mcpServers": []})
        assert refused["code"] == -32000
        assert refused["data"]["fix"]
        assert editor.refusal("authenticate", {"methodId": way["id"]})["code"] == -32000
        assert editor.refusal("authenticate", {"methodId": "x"})["code"] == -32602
    with EditorClient(talk) as editor:
        assert editor.result("authenticate", {"methodId": "keys"}) == {}


def test_files_of_a_repository_need_trust_as_elsewhere(tmp_path: Path) -> None:
    talk = place(tmp_path)
    (talk.work / "AGENTS.md").write_text("Always say moo.\n")
    with EditorClient(talk) as editor:
        session = editor.new()
        editor.until(lambda each: "not used" in json.dumps(each))
        editor.prompt(session, "/trust yes")
        editor.result("session/close", {"sessionId": session})
        again = editor.new()
        editor.prompt(again, "/context")
        assert "AGENTS.md" in editor.told(again)


def test_a_client_that_leaves_ends_the_work(tmp_path: Path) -> None:
    talk = place(tmp_path, SLEEPS)
    editor = EditorClient(talk, "--mode", "trust-project", answer=select("yes"))
    editor.ask(editor.new(), {"type": "text", "text": "go"})
    editor.until(lambda each: "begun" in json.dumps(each.get("update", {}).get("content", "")))
    assert editor.close() == 0
    assert talk.agent("audit", "verify").returncode == 0


def test_a_signal_ends_the_agent_and_seals_the_record(tmp_path: Path) -> None:
    talk = place(tmp_path, SLEEPS)
    editor = EditorClient(talk, "--mode", "trust-project", answer=select("yes"), execve=True)
    editor.ask(editor.new(), {"type": "text", "text": "go"})
    editor.until(lambda each: "begun" in json.dumps(each.get("update", {}).get("content", "")))
    editor.process.terminate()
    timer = threading.Timer(30, editor.process.kill)
    timer.start()
    assert editor.process.wait() == 130
    timer.cancel()
    assert talk.agent("audit", "verify").returncode == 0
    editor.close()
