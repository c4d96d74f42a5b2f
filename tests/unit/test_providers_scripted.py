"""Tests of the scripted model: it plays its turns and reacts to results, and an invalid script is an error with its
place.
"""

import asyncio
from pathlib import Path

import pytest

from runner.messages import (
    AssistantMessage,
    CallOpened,
    CallReady,
    Provider,
    Reply,
    Request,
    Stop,
    StreamEvent,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
)
from runner.providers import open_provider, scripted
from runner.providers.endpoint import SetupError
from runner.providers.script_file import read_script
from runner.providers.scripted import ScriptedProvider, Turn

HELLO = UserMessage((TextBlock("hello"),))


def results(*texts: str, is_error: bool = False) -> ToolMessage:
    return ToolMessage(tuple(ToolResult(f"c{n}", (TextBlock(text),), is_error) for n, text in enumerate(texts)))


def play(provider: Provider, *messages: UserMessage | ToolMessage) -> list[StreamEvent]:
    async def run() -> list[StreamEvent]:
        request = Request("script", "", (HELLO, *messages), ())
        return [event async for event in provider.stream(request)]

    return asyncio.run(run())


def said(provider: Provider, *messages: UserMessage | ToolMessage) -> str:
    reply = play(provider, *messages)[-1]
    assert isinstance(reply, Reply)
    return "".join(block.text for block in reply.message.content if isinstance(block, TextBlock))


def test_a_turn_streams_like_any_other_model() -> None:
    turn = Turn("I look  at it.\n", "Hm, hm.", (ToolCall("", "ls", {"path": "."}), ToolCall("mine", "ls", {})))
    events = play(ScriptedProvider([turn]))
    assert events[-1] == Reply(
        AssistantMessage(
            (
                ThinkingBlock("Hm, hm."),
                TextBlock("I look  at it.\n"),
                ToolCall("scripted-1-1", "ls", {"path": "."}),
                ToolCall("mine", "ls", {}),
            )
        ),
        Stop.TOOLS,
        Usage(),
    )
    thinking = [event.text for event in events if isinstance(event, ThinkingDelta)]
    text = [event.text for event in events if isinstance(event, TextDelta)]
    assert len(thinking) == 2
    assert len(text) == 4
    assert ("".join(thinking), "".join(text)) == ("Hm, hm.", "I look  at it.\n")


def test_turns_come_in_order_and_the_end_is_polite() -> None:
    provider = ScriptedProvider([Turn("one"), Turn("two", stop=Stop.LENGTH)])
    stops = []
    texts = []
    for _ in range(4):
        reply = play(provider)[-1]
        assert isinstance(reply, Reply)
        stops.append(reply.stop)
        texts.append("".join(block.text for block in reply.message.content if isinstance(block, TextBlock)))
    assert texts == ["one", "two", "The script has no more turns.", "The script has no more turns."]
    assert stops == [Stop.END, Stop.LENGTH, Stop.END, Stop.END]


BRANCH = [
    Turn("start"),
    Turn("I adapt.", when="refused", otherwise=Turn("Fine.")),
    Turn("Only if odd.", when="odd"),
    Turn("Done."),
]
ADAPTING: list[tuple[list[tuple[str, ...]], list[str], str]] = [
    ([("ok",), ("ok",)], ["start", "Fine.", "Done."], "nothing special"),
    ([("it was refused: why",), ("ok",)], ["start", "I adapt.", "Done."], "the condition holds"),
    ([("ok", "refused"), ("ok",)], ["start", "I adapt.", "Done."], "in any of the results"),
    ([("Refused",), ("ok",)], ["start", "Fine.", "Done."], "letter case counts"),
    ([("ok",), ("odd",)], ["start", "Fine.", "Only if odd."], "a turn without `otherwise` is played if it holds"),
    ([("refused",), ("refused",)], ["start", "I adapt.", "Done."], "each turn looks at the last results only"),
]


@pytest.mark.parametrize(("seen", "expected", "why"), ADAPTING, ids=[case[2] for case in ADAPTING])
def test_a_script_adapts(seen: list[tuple[str, ...]], expected: list[str], why: str) -> None:
    provider = ScriptedProvider(BRANCH)
    history: list[ToolMessage] = []
    texts = [said(provider)]
    for texts_of_turn in seen:
        history.append(results(*texts_of_turn))
        texts.append(said(provider, *history))
    assert texts == expected, why


def test_a_condition_without_any_results_does_not_hold() -> None:
    assert said(ScriptedProvider([Turn("a", when="x"), Turn("b")])) == "b"
    assert said(ScriptedProvider([Turn("a", when="hello"), Turn("b")])) == "b", "prompts are not results"


def test_a_cancelled_turn_is_played_again() -> None:
    provider = ScriptedProvider([Turn("one two three"), Turn("four")])

    async def run() -> None:
        events = provider.stream(Request("script", "", (HELLO,), ()))
        assert await anext(events) == TextDelta("one")
        await events.aclose()

    asyncio.run(run())
    assert said(provider) == "one two three"
    assert said(provider) == "four"


# ---- files ----------------------------------------------------------------------------------------------------------

TOML = r"""
[[turn]]
thinking = "the tests come first"
text = "I will run the tests."
calls = [{ name = "bash", arguments = { script = "make test", timeout = 5 } }, { name = "ls" }]

[[turn]]
when = "refused"
text = "Then I only read."
calls = [{ name = "read", raw = '{"path": "Make' }]
stop = "length"

[turn.otherwise]
text = "All tests pass."
"""
JSON = """{"turn": [
  {"thinking": "the tests come first", "text": "I will run the tests.",
   "calls": [{"name": "bash", "arguments": {"script": "make test", "timeout": 5}}, {"name": "ls"}]},
  {"when": "refused", "text": "Then I only read.", "stop": "length",
   "calls": [{"name": "read", "raw": "{\\"path\\": \\"Make"}],
   "otherwise": {"text": "All tests pass."}}]}"""
EXPECTED = (
    Turn(
        "I will run the tests.",
        "the tests come first",
        (ToolCall("", "bash", {"script": "make test", "timeout": 5}), ToolCall("", "ls", {})),
    ),
    Turn(
        "Then I only read.",
        "",
        (ToolCall("", "read", None, '{"path": "Make'),),
        Stop.LENGTH,
        "refused",
        Turn("All tests pass."),
    ),
)


@pytest.mark.parametrize(("name", "text"), [("a.toml", TOML), ("a.json", JSON), ("A.TOML", TOML)])
def test_a_file_is_a_script(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert read_script(path) == EXPECTED
    opened = open_provider(f"scripted:{path}", environ={})
    provider = opened.provider
    assert (provider.name, opened.model, opened.secrets) == ("scripted", str(path), ())
    assert said(provider) == "I will run the tests."
    assert said(provider, results("refused")) == "Then I only read."


def test_the_example_in_the_documentation_is_a_script(tmp_path: Path) -> None:
    assert scripted.__doc__
    lines = [line[4:] for line in scripted.__doc__.split("\n") if line.startswith("    ")]
    path = tmp_path / "example.toml"
    path.write_text("\n".join(lines))
    first, second = read_script(path)
    assert first.calls == (ToolCall("", "bash", {"command": "make test"}),)
    assert second.otherwise == Turn("All tests pass.")


# fmt: off
BAD: list[tuple[str, str | bytes, list[str], str]] = [
    ("a.toml", "",                                             ["`turn` is missing"],                 "nothing"),
    ("a.json", '{"turn": []}',                                 ["`turn` is empty"],                   "no turns"),
    ("a.json", "[]",                                           ["not a table"],                       "a list"),
    ("a.json", '{"turns": [{}]}',                              ["`turn` is missing"],                 "a key that is close"),
    ("a.json", '{"turn": [{}], "pace": 3}',                    ["unknown key `pace`", "keys are"],    "a key that is not"),
    ("a.toml", "calls = []\n[[turn]]",                         ["`calls` is outside of a turn", "below a line `[[turn]]`"], "too early"),
    ("a.toml", "[[turn]]\ntxet = 'a'",                         ["turn 1: unknown key `txet`", "did you mean `text`"], "a slip"),
    ("a.toml", "[[turn]]\n[[turn]]\ntext = 5",                 ["turn 2: `text` is not text"],        "a number as text"),
    ("a.toml", "[[turn]]\ncalls = [{ name = 'a' }, { nam = 'b' }]",
     ["turn 1, calls 2: `name` is missing"],                                                          "a call without a name"),
    ("a.toml", "[[turn]]\ncalls = [{ name = '' }]",            ["turn 1, calls 1: `name` is empty"],  "a call with an empty name"),
    ("a.toml", "[[turn]]\ncalls = 'ls'",                       ["`calls` is not a list"],             "text as calls"),
    ("a.toml", "[[turn]]\ncalls = [{ name = 'a', arguments = 'b' }]",
     ["turn 1, calls 1: `arguments` is not a table"],                                                 "text as arguments"),
    ("a.toml", "[[turn]]\ncalls = [{ name = 'a', arguments = {}, raw = '' }]",
     ["both `arguments` and `raw`"],                                                                  "two kinds of arguments"),
    ("a.toml", "[[turn]]\nstop = 'later'",                     ["turn 1: `stop` must be one of end, tools"], "a stop that is none"),
    ("a.toml", "[[turn]]\n[turn.otherwise]\ntext = 'a'",       ["can never be played"],               "otherwise without when"),
    ("a.toml", "[[turn]]\nwhen = 'a'\n[turn.otherwise]\nwhen = 'b'",
     ["turn 1, otherwise: unknown key `when`"],                                                       "a condition in a condition"),
    ("a.toml", "[[turn]\n",                                    ["toml:", "line 1"],                   "not TOML"),
    ("a.json", '{"turn": [\n}',                                ["json:", "line 2"],                   "not JSON"),
    ("a.json", "[" * 100_000,                                  ["too deep nesting"],                     "bottomless"),
    ("a.json", '{"turn": ' + "9" * 5000 + "}",                 ["too deep nesting"],                     "a number without end"),
    ("a.toml", b"[[turn]]\ntext = '\xff'",                     ["not UTF-8"],                         "not text"),
    ("a.json", b"\xff\xfe\xff",                                ["not UTF-8"],                         "not text either"),
    ("a.yaml", "turn: []",                                     ["neither `.toml` nor `.json`"],       "another format"),
    ("a",      "",                                             ["neither `.toml` nor `.json`"],       "no ending"),
    ("a.toml", b"#" * ((16 << 20) + 1),                        ["larger than 16 MiB"],                 "too large"),
]
# fmt: on


@pytest.mark.parametrize(("name", "data", "words", "why"), BAD, ids=[case[3] for case in BAD])
def test_a_bad_file_is_a_problem(name: str, data: str | bytes, words: list[str], why: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(SetupError) as caught:
        open_provider(f"scripted:{path}", environ={})
    text = str(caught.value.problem)
    assert f"`{path}`" in text
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("name", "words"),
    [("missing.toml", "no such file"), ("", "is a directory"), ("a\0.toml", "name is not valid")],
)
def test_a_file_that_cannot_be_opened_is_a_problem(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=words):
        read_script(tmp_path / name)


def test_an_early_turn_tells_each_call_when_it_is_whole(tmp_path: Path) -> None:
    """A call with broken JSON is never complete."""
    script = tmp_path / "s.toml"
    script.write_text(
        '[[turn]]\nearly = true\ntext = "I look."\n'
        'calls = [{ name = "ls", arguments = { path = "." } }, { name = "read", raw = "{" }]\n'
    )
    *before, reply = play(ScriptedProvider(read_script(script)))
    assert isinstance(reply, Reply)
    first, _ = reply.message.calls
    assert before == [TextDelta("I"), TextDelta(" look."), CallOpened("ls"), CallReady(first), CallOpened("read")]
