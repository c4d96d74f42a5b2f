"""Tests of the words of the command line: names and options in the order of other agents, and prompts without a command."""

import pytest

from runner.cli.command_line import split_prompt, usual_words

# fmt: off
USUAL = [
    # typed, understood as, why
    (["version"],                            ["--version"],                                "as of many programs"),
    (["help"],                               ["--help"],                                   "without a command"),
    (["help", "run"],                        ["run", "--help"],                            "of a command"),
    (["help", "audit", "show"],              ["audit", "show", "--help"],                  "of a command of a group"),
    (["login", "openai"],                    ["auth", "login", "openai"],                  "a login"),
    (["logout", "--all"],                    ["auth", "logout", "--all"],                  "a logout"),
    (["chat", "--mode", "plan"],             ["--mode", "plan"],                           "a conversation"),
    (["-p", "why?"],                         ["run", "why?"],                              "print mode"),
    (["--print", "why?", "--model", "m:n"],  ["run", "why?", "--model", "m:n"],            "options after the prompt"),
    (["--print=why?"],                       ["run", "why?"],                              "as one word"),
    (["-p"],                                 ["run"],                                      "the prompt is on standard input"),
    (["--model", "m:n", "-p", "why?"],       ["run", "--model", "m:n", "why?"],            "options before print mode"),
    (["--model", "m:n", "run", "why?"],      ["run", "--model", "m:n", "why?"],            "options before the command"),
    (["--model=m:n", "-c", "run", "go"],     ["run", "--model=m:n", "-c", "go"],           "several of them"),
    (["--mode", "plan", "exec", "ls"],       ["exec", "--mode", "plan", "ls"],             "of a command without a model"),
    (["--resume", "0123abcd", "run", "go"],  ["run", "--resume", "0123abcd", "go"],        "an optional value"),
    (["--resume", "run", "go"],              ["run", "--resume", "go"],                    "a command is no id"),
    (["--mode", "run", "run", "go"],         ["run", "--mode", "run", "go"],               "a value that is called like a command"),
    # unchanged
    ([],                                     [],                                           "nothing"),
    (["run", "--help"],                      ["run", "--help"],                            "already so"),
    (["--unattended", "audit"],              ["--unattended", "audit"],                    "audit has no such option"),
    (["--model", "m:n", "exec", "ls"],       ["--model", "m:n", "exec", "ls"],             "exec has no model"),
    (["--plain", "run", "x"],                ["--plain", "run", "x"],                      "run has no such option"),
    (["--nonsense", "run", "x"],             ["--nonsense", "run", "x"],                   "an unknown option"),
    (["exec", "--", "help"],                 ["exec", "--", "help"],                       "words of the command"),
    (["run", "-p"],                          ["run", "-p"],                                "an option of no command"),
    (["rnu"],                                ["rnu"],                                      "a misspelled command"),
]
PROMPTS = [
    # typed, options, prompt, why
    (["fix the bug"],                        [],                        "fix the bug",  "one word with blanks"),
    (["fix\nthe bug"],                       [],                        "fix\nthe bug", "of two lines"),
    (["--", "fix"],                          [],                        "fix",          "after the dashes"),
    (["--", "--help me"],                    [],                        "--help me",    "it begins with dashes"),
    (["--", "run"],                          [],                        "run",          "even a command"),
    (["--mode", "plan", "fix the bug"],      ["--mode", "plan"],        "fix the bug",  "after options"),
    (["fix the bug", "--mode", "plan"],      ["--mode", "plan"],        "fix the bug",  "before options"),
    (["-c", "go on please"],                 ["-c"],                    "go on please", "in the last session"),
    (["--resume", "go on please"],           ["--resume"],              "go on please", "in a session to pick"),
    (["fix"],                                ["fix"],                   None,           "may be a misspelled command"),
    (["fix", "the", "bug"],                  ["fix", "the", "bug"],     None,           "no quotes"),
    (["fix the bug", "now"],                 ["fix the bug", "now"],    None,           "two words"),
    (["fix the bug", "--nonsense"],          ["fix the bug", "--nonsense"], None,       "an unknown option"),
    (["run", "fix the bug"],                 ["run", "fix the bug"],    None,           "the prompt of a command"),
    (["--nonsense", "fix the bug"],          ["--nonsense", "fix the bug"], None,       "an option that may take it"),
    (["--", "a", "b"],                       ["--", "a", "b"],          None,           "two words after the dashes"),
    (["--"],                                 ["--"],                    None,           "nothing after the dashes"),
    ([" "],                                  [" "],                     None,           "no text"),
    ([""],                                   [""],                      None,           "an empty word"),
]
# fmt: on


@pytest.mark.parametrize(("typed", "meant", "why"), USUAL, ids=[row[2] for row in USUAL])
def test_the_words_are_understood(typed: list[str], meant: list[str], why: str) -> None:
    assert usual_words(typed) == meant


@pytest.mark.parametrize(("typed", "options", "prompt", "why"), PROMPTS, ids=[row[3] for row in PROMPTS])
def test_a_prompt_without_a_command(typed: list[str], options: list[str], prompt: str | None, why: str) -> None:
    assert split_prompt(typed) == (options, prompt)
