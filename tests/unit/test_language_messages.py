"""Language servers, without a process: messages, addresses, positions, edits, and the terms of a start."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model.action import QueryCode
from runner.lsp.client import path_of
from runner.lsp.framing import LONGEST, MessageReader
from runner.lsp.positions import SymbolMissing, place_of, word_from
from runner.lsp.presets import PRESETS, language_of
from runner.lsp.rename import _changed_part


def framed(message: object, more: bytes = b"") -> bytes:
    body = json.dumps(message).encode()
    return b"Content-Length: %d\r\n%s\r\n%s" % (len(body), more, body)


ONE = {"jsonrpc": "2.0", "method": "x"}
# fmt: off
CHUNKS = [
    (framed(ONE),                                               [ONE],      "",                   "one message"),
    (framed(ONE) * 3,                                           [ONE] * 3,  "",                   "three at once"),
    (framed(ONE, b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\n"), [ONE], "",      "a second field"),
    (b"content-length:   2\r\n\r\n{}",                          [{}],       "",                   "another spelling"),
    (framed([1]),                                               [],         "",                   "no object"),
    (b"Content-Length: 3\r\n\r\n{]}" + framed(ONE),             [ONE],      "",                   "no JSON, then a message"),
    (framed(ONE)[:-1],                                          [],         "",                   "not complete"),
    (b"Content-Length: 9999999999\r\n\r\n",                     [],         "one length",         "ten digits"),
    (b"Content-Length: %d\r\n\r\n" % (LONGEST + 1),             [],         "more than 8 MiB",    "too long"),
    (b"Content-Length: -1\r\n\r\n",                             [],         "one length",         "a negative length"),
    (b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",       [],         "one length",         "two lengths"),
    (b"Content-Type: x\r\n\r\n",                                [],         "one length",         "no length"),
    (b"Content-Length: 2\r\nno field\r\n\r\n{}",                [],         "one length",         "a line that is no field"),
    (b"A" * 5000,                                               [],         "does not end",       "a field without an end"),
    (b"Hello, user!\n",                                         [],         "no message",         "a greeting"),
    (framed(ONE) + b"\x00\x01",                                 [],         "no message",         "bytes after a message"),
    (b"Content-Length: 400\r\n\r\n" + b"[" * 200 + b"]" * 200,  [],         "",                   "a deep array"),
]
# fmt: on


@pytest.mark.threat("T260")
@pytest.mark.parametrize(("data", "messages", "fault", "why"), CHUNKS, ids=[row[-1] for row in CHUNKS])
def test_messages_are_cut_out_whatever_the_chunks_are(
    data: bytes, messages: list[object], fault: str, why: str
) -> None:
    whole, single = MessageReader(), MessageReader()
    found = whole.take(data)
    one_by_one = [message for number in range(len(data)) for message in single.take(data[number : number + 1])]
    for reader in (whole, single):
        assert fault in reader.fault, why
        assert bool(reader.fault) == bool(fault)
        assert reader.take(framed(ONE)) == [] or not fault
    if not fault:
        assert found == one_by_one == messages


@pytest.mark.threat("T260")
def test_deep_objects_and_many_faults_end_a_connection() -> None:
    deep: object = {}
    for _ in range(300):
        deep = {"a": deep}
    reader = MessageReader()
    assert reader.take(framed(deep)) == []
    assert not reader.fault
    reader.take(b"Content-Length: 1\r\n\r\nx" * 101)
    assert "no JSON objects" in reader.fault


@pytest.mark.threat("T260")
@given(st.lists(st.binary(max_size=60), max_size=20))
def test_no_bytes_of_a_server_raise_an_error(chunks: list[bytes]) -> None:
    reader = MessageReader()
    for chunk in chunks:
        assert isinstance(reader.take(chunk), list)


# fmt: off
ADDRESSES = [
    ("file:///w/a.py",               "/w/a.py",   "a file"),
    ("file:///w/a%20b.py",           "/w/a b.py", "an encoded blank"),
    ("file:///w/../etc/passwd",      "",          "a path that goes up"),
    ("file:///w/%2e%2e/etc/passwd",  "",          "an encoded path that goes up"),
    ("file:///w/%2E%2E%2Fetc",       "",          "an encoded separator"),
    ("file://host/w/a.py",           "",          "another machine"),
    ("file:/w/a.py",                 "",          "one slash"),
    ("file:////w/a.py",              "",          "four slashes"),
    ("http://127.0.0.1/w/a.py",      "",          "no file"),
    ("file:///w/a%00.py",            "",          "NUL"),
    ("file:///" + "a" * 9000,        "",          "too long"),
    ("",                             "",          "nothing"),
]
# fmt: on


@pytest.mark.threat("T261")
@pytest.mark.parametrize(("uri", "path", "why"), ADDRESSES, ids=[row[-1] for row in ADDRESSES])
def test_only_plain_addresses_of_files_are_paths(uri: str, path: str, why: str) -> None:
    assert path_of(uri) == path, why


LINES = ["import os", "", "def parse(text):", "    return parse(text) or reparse", "", "class Box: pass"]
# fmt: off
PLACES = [
    (0, "parse",     (2, 4),   "the first occurrence as a word"),
    (4, "parse",     (3, 11),  "the word on the line"),
    (1, "parse",     (2, 4),   "a line that is off by two"),
    (4, "reparse",   (3, 26),  "a longer word"),
    (6, "Box.parse", (3, 11),  "the last part of a name"),
    (3, "",          (2, 0),   "the first name of a line"),
    (0, "missing",   None,     "a word that is not there"),
    (5, "os",        (0, 7),   "the end of the range around the line"),
    (9, "",          None,     "a line after the end"),
    (5, "",          None,     "an empty line"),
    (400, "parse",   None,     "a line far away"),
    (0, "a(b",       None,     "no pattern"),
]
# fmt: on


@pytest.mark.parametrize(("line", "symbol", "place", "why"), PLACES, ids=[row[-1] for row in PLACES])
def test_a_word_is_found_near_the_stated_line(line: int, symbol: str, place: tuple[int, int] | None, why: str) -> None:
    action = QueryCode("hover", "/w/a.py", line, symbol)
    if place is None:
        with pytest.raises(SymbolMissing):
            place_of(action, LINES)
    else:
        assert place_of(action, LINES) == place, why


def test_a_position_of_a_keyword_becomes_that_of_the_name() -> None:
    assert word_from(LINES, 2, 0, "parse") == (2, 4)
    assert word_from(["@cache", "def parse():"], 0, 0, "parse") == (1, 4)
    assert word_from(LINES, 5, 0, "parse") == (5, 0)


TEXTS = st.lists(st.sampled_from(["a", "b", "", "a b"]), max_size=8).map("\n".join)


@pytest.mark.threat("T262")
@given(TEXTS, TEXTS)
def test_the_changed_part_occurs_once_and_gives_the_new_text(before: str, after: str) -> None:
    if before == after or not before:
        return
    old, new = _changed_part(before, after)
    assert before.count(old) == 1
    assert before.replace(old, new) == after


def test_presets_have_names_of_their_own_and_plain_patterns() -> None:
    names = [preset.name for preset in PRESETS]
    assert len(names) == len(set(names))
    assert all(pattern.startswith("*.") for preset in PRESETS for pattern in preset.files)
    assert (language_of("/w/a.tsx"), language_of("/w/b.go"), language_of("/w/Makefile")) == (
        "typescriptreact", "go", "makefile",
    )  # fmt: skip
