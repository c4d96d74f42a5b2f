"""A regular expression is compiled at its first use, once, and answers as any other does."""

import re

import pytest

from policy import argument, hosts, risk, variables
from policy.pattern import pattern
from runner import drivers


def test_it_answers_as_a_compiled_one_does() -> None:
    ours, usual = pattern("a(b+)", re.IGNORECASE), re.compile("a(b+)", re.IGNORECASE)
    for text in ("abb", "xABab", "", "aab"):
        for name in ("match", "search", "fullmatch"):
            found, other = getattr(ours, name)(text), getattr(usual, name)(text)
            assert (found and found.group(1)) == (other and other.group(1)), (name, text)
        assert ours.findall(text) == usual.findall(text)
        assert ours.sub(r"-\1", text) == usual.sub(r"-\1", text)
        assert ours.split(text) == usual.split(text)
        assert [each.span() for each in ours.finditer(text)] == [each.span() for each in usual.finditer(text)]


def test_it_is_compiled_once_and_not_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    usual = re.compile
    monkeypatch.setattr(re, "compile", lambda *args: compiled.append(args) or usual(*args))
    ours = pattern("x{3}")
    assert compiled == []
    assert ours.match("xxx")
    assert ours.search("axxx")
    assert not ours.match("xx")
    assert compiled == [("x{3}", 0)]


def test_what_a_pattern_has_not_is_an_error() -> None:
    with pytest.raises(AttributeError):
        pattern("x").nothing  # type: ignore[attr-defined]  # noqa: B018  # what is tried


def test_every_one_of_them_compiles() -> None:
    found = 0
    for module in (argument, hosts, risk, variables, drivers):
        for value in vars(module).values():
            for each in value.values() if isinstance(value, dict) else [value]:
                if type(each) is type(pattern("x")):
                    each.match("")
                    found += 1
    assert found > 20
