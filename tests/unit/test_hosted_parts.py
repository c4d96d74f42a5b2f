"""Tests of the parts of a hosted session that need no process: its protocol, its condensed events, its decoded events."""

import dataclasses
import json
import random
from pathlib import Path

import pytest

from policy.model.action import WriteFile
from runner import events
from runner.events import ModelText
from runner.frontends.hosted.address import HostedSession
from runner.frontends.hosted.argv import host_words, parse_host
from runner.frontends.hosted.cards import answer_lines
from runner.frontends.hosted.decoded import Undecodable, event_of_json
from runner.frontends.hosted.protocol import Attach, ClientScope, parse_attach
from runner.frontends.hosted.replay import MOST, CondensedEvents
from runner.frontends.jsonl.protocol import Misread
from runner.problems import Stopped
from tests.support import screen_story
from tests.support.cards import HERE, card_of

# fmt: off
REFUSED: list[tuple[bytes, str]] = [
    (b"",                                                       "not valid JSON"),
    (b"[]",                                                     "not a JSON object"),
    (b'{"type": "prompt", "text": "x"}',                        "not of type `attach`"),
    (b'{"type": "attach", "scope": "view"}',                    "needs `who`"),
    (b'{"type": "attach", "who": " ", "scope": "view"}',        "needs `who`"),
    (b'{"type": "attach", "who": "a", "scope": "root"}',        "`scope` is one of"),
    (b'{"type": "attach", "who": "a"}',                         "`scope` is one of"),
    (b'{"type": "attach", "who": "a", "scope": ["prompt"]}',    "`scope` is one of"),
    (b'{"type": "attach", "who": "a", "scope": "view", "scope": "prompt"}', "not valid JSON"),
    (b'{"type": "attach", "who": "a", "scope": "view", "x": 1}', "`x` is not a field"),
    (b'{"type": "attach", "who": "a", "scope": "view", "replay": -1}', "`replay` is a number"),
    (b'{"type": "attach", "who": "a", "scope": "view", "replay": true}', "`replay` is a number"),
    (b'{"type": "attach", "who": "' + b"a" * 5000 + b'", "scope": "view"}', "longer than"),
]
# fmt: on


@pytest.mark.threat("T278")
@pytest.mark.parametrize(("line", "why"), REFUSED, ids=[f"{place} {row[1]}" for place, row in enumerate(REFUSED)])
def test_a_wrong_first_line_attaches_nobody(line: bytes, why: str) -> None:
    with pytest.raises(Misread) as found:
        parse_attach(line)
    assert why in found.value.problem.why


def test_a_first_line_is_a_value() -> None:
    line = b'{"type": "attach", "who": "a\\u001b[2J", "scope": "answer", "replay": "all"}'
    assert parse_attach(line) == Attach("a␛[2J", ClientScope.ANSWER, None)


def story() -> list[events.Event]:
    """Return every event of the story of the screen."""
    lists = [value for value in vars(screen_story).values() if isinstance(value, list | tuple)]
    found = [each for value in lists for each in value if isinstance(each, events._Event)]
    assert len({each.type for each in found}) > 15
    return found  # type: ignore[return-value]  # every instance of the base class is an Event


def test_every_event_is_the_same_value_after_its_json_form() -> None:
    for event in story():
        found = event_of_json(json.loads(event.line()))
        assert found.line() == event.line()
        if not isinstance(event, events.QuestionAsked):  # the JSON form of a card names scopes in words
            assert found == event


def test_a_card_keeps_what_a_terminal_shows() -> None:
    cards = [card_of("npm test"), card_of("curl https://example.org | sh"), card_of(WriteFile(f"{HERE}/a", "b\n"))]
    assert any(card.choices for card in cards)
    for card in cards:
        asked = events.QuestionAsked("1", card.question, card, "", "q1")
        found = event_of_json(json.loads(asked.line()))
        assert isinstance(found, events.QuestionAsked)
        assert found.card is not None
        unlike = {
            item.name for item in dataclasses.fields(card) if getattr(card, item.name) != getattr(found.card, item.name)
        }
        assert unlike <= {"question", "choices", "marks"}
        assert answer_lines(found.card) == answer_lines(card)


@pytest.mark.threat("T279")
def test_nonsense_is_never_an_event() -> None:
    chosen = random.Random(3)
    for event in story():
        whole = json.loads(event.line())
        for name in list(whole):
            for value in (None, 1, "x", [1], {"a": 1}):
                try:
                    found = event_of_json({**whole, name: value})
                except Undecodable:
                    continue
                assert isinstance(found, events._Event)
        with pytest.raises(Undecodable):
            event_of_json({**whole, "type": f"x{chosen.random()}"})


def text(words: str, agent: str = "main") -> dict[str, object]:
    return json.loads(ModelText(words, agent=agent).line())  # type: ignore[no-any-return]  # a JSON object


def test_pieces_of_text_are_joined_and_what_is_not_shown_is_left_out() -> None:
    replay = CondensedEvents()
    for each in (
        text("a"),
        {"type": "context"},
        text("b"),
        {"type": "output", "text": "x"},
        text("c", "explore-1"),
        text("d"),
    ):
        replay.add(each)
    lines, earlier = replay.last(None)
    assert [json.loads(line)["text"] for line in lines] == ["ab", "c", "d"]
    assert earlier == 0
    replay.add(text("e"))
    assert json.loads(replay.last(1)[0][0])["text"] == "e"
    assert replay.last(1)[1] == 3


def test_only_the_last_events_are_kept() -> None:
    replay = CondensedEvents()
    for number in range(MOST + 5):
        replay.add({"type": "notice", "text": str(number)})
    lines, earlier = replay.last(2)
    assert [json.loads(line)["text"] for line in lines] == [str(MOST + 3), str(MOST + 4)]
    assert (earlier, replay.earlier) == (MOST + 3, 5)
    replay.add({"type": "session_started"})
    assert replay.last(None) == ([b'{"type":"session_started"}\n'], 0)


def test_a_long_result_is_cut_in_its_middle() -> None:
    replay = CondensedEvents()
    replay.add({"type": "finished", "text": "a" * 100_000 + "b"})
    kept = json.loads(replay.last(None)[0][0])["text"]
    assert len(kept) < 20_000
    assert kept.endswith("b")
    assert "84,001 characters left out" in kept


def test_options_reach_the_process_of_the_session() -> None:
    given, _, _ = parse_host(
        ["--mode=plan", "--limit=wall=60s", "--limit", "pids=5", "--unattended", "--max-turns=7", "--cwd=/w"]
    )
    again, lifeline, report = parse_host([*host_words(given, "/w"), "--lifeline=5", "--report=ab12"])
    assert (lifeline, report) == (5, "ab12")
    assert again.text("mode") == "plan"
    assert again.texts("limit") == ("wall=60s", "pids=5")
    assert again.switch("unattended")
    assert again.number("max_turns") == 7
    assert again.text("cwd") == "/w"


@pytest.mark.parametrize(
    "words", [["--x"], ["--mode"], ["--lifeline=a"], ["--report=../x"], ["--api-key-stdin"], ["hi"]]
)
def test_other_words_start_no_session(words: list[str]) -> None:
    with pytest.raises(Stopped):
        parse_host(words)


def test_a_description_is_read_only_if_it_is_complete(tmp_path: Path) -> None:
    whole = HostedSession("a" * 16, 1, "/w", "/w", "t", "plan", "m", "idle", 1.5, 2, ("a",), ("q1",), unattended=False)
    found = json.loads(json.dumps(whole.as_json()))
    assert HostedSession.of_json(found) == whole
    for name in found:
        assert HostedSession.of_json({**found, name: {}}) is None
        assert HostedSession.of_json({key: value for key, value in found.items() if key != name}) is None
