"""Tests of regular expressions that are compiled at their first use."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from policy.model.glob import late

USES: tuple[Callable[[Any], object], ...] = (
    lambda each: each.match("ab1").group(),
    lambda each: each.fullmatch("ab1"),
    lambda each: each.search("-ab1").span(),
    lambda each: each.sub("x", "ab cd"),
    lambda each: each.split("1ab2cd3"),
    lambda each: each.findall("ab CD"),
    lambda each: [found.group() for found in each.finditer("ab CD")],
    lambda each: each.pattern,
)


@pytest.mark.parametrize("use", USES)
def test_it_does_what_a_compiled_one_does(use: Callable[[Any], object]) -> None:
    assert use(late("[a-z]+", re.IGNORECASE)) == use(re.compile("[a-z]+", re.IGNORECASE))


def test_it_is_compiled_once_and_not_before_its_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    usual = re.compile
    monkeypatch.setattr(re, "compile", lambda *words: compiled.append(words) or usual(*words))
    pattern = late(rb"(\d+)")
    assert compiled == []
    assert [bool(pattern.search(text)) for text in (b"1", b"x", b"2")] == [True, False, True]
    assert pattern.sub(b"#", b"a1b22") == b"a#b#"
    assert compiled == [(rb"(\d+)", 0)]


def test_it_has_no_other_attribute() -> None:
    with pytest.raises(AttributeError):
        late("a").unknown  # type: ignore[attr-defined]  # what is tried  # noqa: B018
