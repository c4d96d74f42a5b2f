"""Tests of the event-stream parser: the WHATWG rules as a table, and the property that chunk boundaries change
nothing.
"""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.providers.connection import EventTooLarge, SseEvent, SseParser

# fmt: off
RULES = [
    (b"data: a\n\n",                        [("message", "a")],           "one event"),
    (b"data:a\n\n",                         [("message", "a")],           "the blank after the colon is optional"),
    (b"data:  a\n\n",                       [("message", " a")],          "only one blank is taken off"),
    (b"data: a\ndata: b\n\n",               [("message", "a\nb")],        "data lines join with a line end"),
    (b"data\n\n",                           [("message", "")],            "a field without a colon is an empty value"),
    (b"data:\ndata:\n\n",                   [("message", "\n")],          "two empty lines of data"),
    (b"event: x\ndata: a\n\n",              [("x", "a")],                 "the event's name"),
    (b"data: a\nevent: x\n\n",              [("x", "a")],                 "in any order"),
    (b"event: x\n\ndata: a\n\n",            [("message", "a")],           "no data: no event, no name"),
    (b"event: x\ndata: a\n\ndata: b\n\n",   [("x", "a"), ("message", "b")], "a name holds for one event"),
    (b": hello\ndata: a\n:\n\n",            [("message", "a")],           "comments are passed over"),
    (b"id: 1\nretry: 9\nfoo: b\ndata: a\n\n", [("message", "a")],         "other fields are passed over"),
    (b"data: a\r\n\r\n",                    [("message", "a")],           "CR LF"),
    (b"data: a\r\ndata: b\r\n\r\n",     [("message", "a\nb")],        "CR LF is one line end, not two"),
    (b"data: a\r\r",                        [("message", "a")],           "CR"),
    (b"data: a\r\n\r",                      [("message", "a")],           "mixed line ends"),
    (b"data: a\rdata: b\n\r\n",             [("message", "a\nb")],        "LF CR LF is two line ends"),
    (b"\xef\xbb\xbfdata: a\n\n",            [("message", "a")],           "one byte order mark at the start"),
    (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", [],                          "a second one belongs to the field's name"),
    (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [("message", "a")],           "nor one later"),
    (b"data: \xff\xc3\x28\n\n",             [("message", "\ufffd\ufffd(")], "broken UTF-8 is replaced"),
    (b"data: a: b\n\n",                     [("message", "a: b")],        "the first colon counts"),
    (b" data: a\n\n",                       [],                           "a blank before makes another field"),
    (b"data: a\n",                          [],                           "an unfinished event is not delivered"),
    (b"data: a",                            [],                           "nor an unfinished line"),
    (b"\n\n\n\r\n\r",                       [],                           "blank lines alone are nothing"),
    (b"",                                   [],                           "nothing"),
]
# fmt: on


@pytest.mark.parametrize(("data", "events", "why"), RULES, ids=[why for _, _, why in RULES])
def test_rule(data: bytes, events: list[tuple[str, str]], why: str) -> None:
    expected = [SseEvent(*event) for event in events]
    assert SseParser().feed(data) == expected, why
    byte_by_byte = SseParser()
    assert [event for byte in data for event in byte_by_byte.feed(bytes([byte]))] == expected, why


PIECES = st.sampled_from(
    [
        b"data: ",
        b"data",
        b"event: x",
        b":",
        b" ",
        b"\r",
        b"\n",
        b"\r\n",
        b"\n\n",
        "ü🦔".encode(),
        b"\xff",
        b"\xef\xbb\xbf",
        b"a",
    ]
)


@pytest.mark.threat("T27")
@given(st.lists(PIECES, max_size=40).map(b"".join), st.lists(st.integers(0, 200), max_size=20))
def test_chunk_boundaries_mean_nothing(data: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    parser = SseParser()
    split = [e for start, end in itertools.pairwise(places) for e in parser.feed(data[start:end])]
    assert split == SseParser().feed(data)


@pytest.mark.threat("T27")
@pytest.mark.parametrize(
    ("chunks", "why"),
    [
        ([b"data: " + b"a" * 2000], "one long line"),
        ([b"a" * 500] * 4, "a line that never ends"),
        ([b"data: a\n"] * 400, "many short lines"),
        ([b"data\n"] * 400, "many empty ones"),
        ([b":\n"] * 800, "comments without an end"),
        ([b"data: " + b"a" * 2000 + b"\n\n"], "whole in one chunk"),
    ],
)
def test_an_event_beyond_the_limit_is_refused(chunks: list[bytes], why: str) -> None:
    parser = SseParser(limit=1000)
    with pytest.raises(EventTooLarge):
        list(map(parser.feed, chunks))


def test_the_limit_is_per_event() -> None:
    parser = SseParser(limit=1000)
    assert len(parser.feed((b"data: " + b"a" * 900 + b"\n\n") * 50)) == 50
