"""Tests of audit queries: the decisions that each query selects, row by row."""

import pytest

from runner.audit.query import Query, command_of

SESSION: dict[str, object] = {"workspace": "/home/ann/shop", "original": "/srv/shop"}
DECIDED: dict[str, object] = {
    "kind": "decided",
    "time": "2026-03-04T05:06:07.089Z",
    "session": "a1b2c3",
    "tool": "bash",
    "action": {"type": "RunScript", "script": "curl https://example.com -o out/page"},
    "effects": [
        {"kind": "connects", "target": "example.com:443"},
        {"kind": "writes", "target": "/home/ann/shop/out/page"},
    ],
    "tiers": ["network", "write"],
    "reasons": [{"tier": "write", "rule": "command:net:12"}],
    "because": {"tier": "network", "rule": "builtin:decision/no-reason"},
    "mode": "default",
    "cell": {"tier": "network", "mode": "default", "ruling": "ask"},
    "verdict": "deny",
    "answer": None,
}
OUTCOME: dict[str, object] = {"connections": [{"host": "cdn.example.net"}]}

# fmt: off
ROWS = [
    (Query(),                                           True,  "nothing is asked for"),
    (Query(verdicts=("deny",)),                         True,  "the verdict"),
    (Query(verdicts=("allow",)),                        False, "another verdict"),
    (Query(tiers=("write",)),                           True,  "not only the worst tier counts"),
    (Query(tiers=("secret", "network")),                True,  "any of the values does"),
    (Query(tiers=("dangerous",)),                       False, "no such tier"),
    (Query(rules=("command:net",)),        True,  "a file without its line"),
    (Query(rules=("builtin:decision",)),                   True,  "the rule that decided counts too"),
    (Query(rules=("net.toml",)),                        False, "the middle of a name is no beginning"),
    (Query(modes=("default",), tools=("bash",)),        True,  "two fields that hold"),
    (Query(modes=("default",), tools=("exec",)),        False, "one that does not"),
    (Query(commands=("curl",)),                         True,  "the first word"),
    (Query(commands=("cur",)),                          False, "the whole of it"),
    (Query(paths=("*/out/*",)),                         True,  "a path that is written"),
    (Query(paths=("example.com*",)),                    False, "a host is no path"),
    (Query(hosts=("example.com:*",)),                   True,  "a host that it wants"),
    (Query(hosts=("*.example.net",)),                   True,  "a host that it reached"),
    (Query(hosts=("/home/*",)),                         False, "a path is no host"),
    (Query(sessions=("a1",)),                           True,  "the beginning of a name"),
    (Query(workspaces=("/home/ann",)),                  True,  "a folder above"),
    (Query(workspaces=("/home/an",)),                   False, "a folder whose name begins alike"),
    (Query(workspaces=("/",)),                          True,  "everything is below the root"),
    (Query(workspaces=("/srv",)),                       True,  "the folder that it is a copy of"),
    (Query(workspaces=("/home/bob",)),                  False, "another"),
    (Query(since="2026-03-04"),                         True,  "a day begins with itself"),
    (Query(until="2026-03-04"),                         False, "and does not end with itself"),
    (Query(since="2026-03-04T05:06:08"),                False, "a second later"),
    (Query(asked=True),                                 True,  "a question that nobody answered"),
]
# fmt: on


@pytest.mark.parametrize(("query", "wanted", "why"), ROWS, ids=[why for _, _, why in ROWS])
def test_a_query_wants(query: Query, wanted: bool, why: str) -> None:
    assert query.matches(DECIDED, SESSION, OUTCOME) is wanted


# fmt: off
COMMANDS: list[tuple[dict[str, object], str, str]] = [
    ({"script": "git push\nls"},                      "git",     "the first word of a script"),
    ({"script": {"cut": "git\tpush", "length": 9}},   "git",     "a script that was cut"),
    ({"argv": ["git", "push"]},                       "git",     "the first of several words"),
    ({"argv": ["my tool", "a"]},                      "my tool", "a word with a blank"),
    ({"argv": {"cut": "git\0commit\0-m\0a b", "length": 99}}, "git", "words that were cut as one text"),
    ({"argv": {"cut": "my tool\0a", "length": 99}},   "my tool", "a word with a blank, cut"),
    ({"argv": "git\0push"},                           "git",     "words that just fit as one text"),
    ({"argv": []},                                    "",        "no words"),
    ({"path": "a"},                                   "",        "a file tool"),
]
# fmt: on


@pytest.mark.parametrize(("action", "wanted", "why"), COMMANDS, ids=[why for _, _, why in COMMANDS])
def test_the_first_word_of_an_action(action: dict[str, object], wanted: str, why: str) -> None:
    assert command_of({"action": action}) == wanted, why
