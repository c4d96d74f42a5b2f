"""Tests of the text of a session, which the screen and the line-based front end draw."""

import pytest

from policy.model.assessment import RuleKind, RuleRef
from policy.model.tier import Mode, Tier
from policy.model.verdict import Problem
from runner.events import Changed, Compacted, Denied, Resumed, Retrying, RunEnded
from runner.frontends.wording import command_lines, denial_fix, note_words, resumption_labels, run_end_words
from runner.messages import Failure, Usage

BEGAN, UNTIL = "2026-03-04T05:06:07.089Z", "2026-03-05T06:07:08.089Z"
SO_FAR = "2026-03-04 05:06 to 2026-03-05 06:07 UTC"


def gone_on(forked: bool, prompts: int, first: str, said: str, *changes: str) -> Resumed:
    return Resumed("a1b2c3d4e5f6", forked, BEGAN, UNTIL, prompts, 2, first, "mend it", said, changes)


# fmt: off
RESUMED = [
    (gone_on(False, 2, "look", "Done.", "mode"),
        (("resumed", f"a1b2c3d4: 2 prompts, 2 requests, {SO_FAR}"), ("first", "look"), ("last", "mend it"), ("answered", "Done."), ("changed", "mode")),
        "all there is"),
    (gone_on(True, 1, "mend it", ""),
        (("forked", f"a1b2c3d4: 1 prompt, 2 requests, {SO_FAR}"), ("last", "mend it")),
        "one prompt is not told twice, and no answer is no row"),
]
NOTES = [
    (Retrying(Failure.OVERLOADED, Problem("it is busy", "", ""), 1.25, 2, 7), "it is busy; retry in 1.25 s (2 of 7)", "a wait"),
    (Retrying(Failure.OVERLOADED, Problem("it is busy", "", ""), 0.51437, 1, 7), "it is busy; retry in 0.514 s (1 of 7)", "not more digits than matter"),
    (Compacted("trim", 900, 400, None),  "compacted (trim): 900 tokens are now 400",            "shorter"),
    (Changed("mode", "plan", "default"), "the mode is now default (was plan)",                  "by a person"),
    (Changed("model", "a:b", "c:d", "busy"), "the model is now c:d (was a:b): busy",            "and why"),
]
ENDED = [
    (RunEnded(0, "done", 1, Usage(), ()),            "done (1 request)",                           "nothing was counted"),
    (RunEnded(0, "done", 2, Usage(10, 3), ()),       "done (2 requests; 10 tokens in, 3 out)",     "tokens"),
]
COMMANDS = [
    ("$ ls\n",                  ["$ ls"],                                                       "as it is"),
    ("$ " + "x" * 2100,         ["$ " + "x" * 1998 + "… 102 more characters"],                  "too long"),
    ("\n".join("abcdefghijklmno"), [*"abcdefghijkl", "… 3 more lines"],                         "too many lines"),
    ("$ a\x1b[2J\u202eb",       ["$ a␛[2J<U+202E>b"],                                           "hostile"),
]
# fmt: on


@pytest.mark.parametrize(("event", "pairs", "why"), RESUMED, ids=[why for *_, why in RESUMED])
def test_what_is_gone_on_with(event: Resumed, pairs: object, why: str) -> None:
    assert resumption_labels(event) == pairs, why


@pytest.mark.parametrize(("event", "words", "why"), NOTES, ids=[why for *_, why in NOTES])
def test_notes(event: Retrying | Compacted | Changed, words: str, why: str) -> None:
    assert note_words(event) == words, why


@pytest.mark.parametrize(("event", "words", "why"), ENDED, ids=[why for *_, why in ENDED])
def test_ends(event: RunEnded, words: str, why: str) -> None:
    assert run_end_words(event) == words, why


@pytest.mark.parametrize(("command", "lines", "why"), COMMANDS, ids=[why for *_, why in COMMANDS])
def test_commands(command: str, lines: list[str], why: str) -> None:
    assert command_lines(command) == lines, why


# first mode that allows, first mode that asks, True if there is a key, words, why
LIFTED = [
    (Mode.TRUST_PROJECT, Mode.DEFAULT, True,  "Shift+Tab or /mode trust-project allows it", "a mode allows it"),
    (Mode.TRUST_PROJECT, Mode.DEFAULT, False, "/mode trust-project allows it",              "without the key"),
    (None,               Mode.DEFAULT, True,  "Shift+Tab or /mode default asks you first",  "no mode allows it"),
    (None,               None,         True,  "use a copy",                                 "no mode lifts it"),
]  # fmt: skip


@pytest.mark.parametrize(("allowed", "asked", "keys", "words", "why"), LIFTED, ids=[why for *_, why in LIFTED])
def test_a_denial_names_the_key(allowed: Mode | None, asked: Mode | None, keys: bool, words: str, why: str) -> None:
    problem = Problem("no", "why", "use a copy")
    rule = RuleRef(RuleKind.BUILTIN, "a/b")
    assert denial_fix(Denied("1.1", "$ x", Tier.EXECUTE, rule, problem, 1, allowed, asked), keys=keys) == words, why
