"""Tests of the JSON Schema that is made from the table of keys, and of the loader against a pydantic model."""

import importlib.util
import json
import os
import re
import tomllib
from datetime import date
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given

from runner.config.json_schema import FILE, make_schema, schema_text, shipped_schema
from runner.config.migrations import renew
from runner.config.read_layer import read_all
from runner.config.schema import ENTRIES, KEYS, LISTS, SECTIONS, SHAPES, VARIABLES
from runner.config.show import packaged_values
from runner.config.template import starter
from tests.support.config_model import complaints
from tests.support.config_strategies import as_toml, documents
from tests.support.law import examples
from tests.support.places import ROOT


def test_the_shipped_schema_and_the_page_are_current() -> None:
    spec = importlib.util.spec_from_file_location("make_configuration", ROOT / "docs/make_configuration.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = ROOT / "docs/reference/configuration.md"
    text = page.read_text("utf-8")
    if os.environ.get("UPDATE_GOLDEN"):
        (ROOT / "runner/config" / FILE).write_text(schema_text(), "utf-8")
        page.write_text(module.page(text), "utf-8")
        text = page.read_text("utf-8")
    assert module.page(text) == text, "after a change of runner/config/schema.py: run it with UPDATE_GOLDEN=1"
    assert shipped_schema() == schema_text(), "after a change of runner/config/schema.py: run it with UPDATE_GOLDEN=1"


def by_hand(text: str) -> list[str]:
    return [str(fault.problem) for fault in read_all(text, "x.toml", most=1)[1]]


def plain(value: Any) -> Any:
    """Return `value` with dates as texts, the form in which an editor passes it to a schema."""
    if isinstance(value, dict):
        return {key: plain(below) for key, below in value.items()}
    if isinstance(value, list):
        return [plain(below) for below in value]
    return value.isoformat() if isinstance(value, date) else value


VALIDATOR = jsonschema.Draft7Validator(make_schema())


@pytest.mark.threat("T44")
@examples(150, many=400, suppress_health_check=[HealthCheck.too_slow])
@given(documents(wild=True))
def test_the_model_and_the_loader_accept_the_same(document: dict[str, Any]) -> None:
    text = as_toml(document)
    read = tomllib.loads(text)
    hand = by_hand(text)
    renew(read)
    model = complaints(read)
    assert bool(hand) == bool(model), (text, hand, model)


@examples(80, many=200, suppress_health_check=[HealthCheck.too_slow])
@given(documents())
def test_the_schema_finds_no_fault_with_what_is_accepted(document: dict[str, Any]) -> None:
    text = as_toml(document)
    if not by_hand(text):
        assert [error.message for error in VALIDATOR.iter_errors(plain(tomllib.loads(text)))] == [], text


SHOWN_BY_EDITORS = [
    ("mod = 'plan'", "an unknown key"),
    ("mode = 'trust'", "no such mode"),
    ("max_turns = 0", "too little"),
    ("max_turns = '3'", "a text"),
    ("[limits]\nwal = 3", "an unknown key of a table"),
    ("[limits]\nmemory = 'lots'", "no size"),
    ("[provider.antropic]\nmodel = 'x'", "no such provider"),
    ("[[rule]]\nverdict = 'maybe'", "no such verdict"),
    ("[[rule]]\nverdict = 'deny'\ntier = ['wirte']", "no such tier"),
    ("[[rule]]\nverdct = 'deny'", "an unknown key of a rule"),
    ("rule = {}", "not a list"),
    ("limits = 3", "not a table"),
]


@pytest.mark.parametrize(("text", "why"), SHOWN_BY_EDITORS)
def test_an_editor_shows_common_slips(text: str, why: str) -> None:
    assert list(VALIDATOR.iter_errors(plain(tomllib.loads(text)))), why
    assert by_hand(text), why


def test_the_schema_is_one_itself_and_stands_alone() -> None:
    jsonschema.Draft7Validator.check_schema(make_schema())
    assert "$ref" not in schema_text(), "not every editor follows those"
    described = make_schema()["properties"]["mode"]["description"]
    assert "can only tighten" in described


@pytest.mark.parametrize("user", [True, False])
def test_the_starter_is_right_as_it_is_and_with_every_line_in_force(user: bool) -> None:
    text = starter(packaged_values(), user=user)
    assert by_hand(text) == []
    assert set(tomllib.loads(text)) <= {"version", *(key.path[0] for key in KEYS)}
    all_of_it = re.sub(r"^# (?=\[|[a-z_]+ *= )", "", text, flags=re.MULTILINE)  # every key and example in force
    assert by_hand(all_of_it) == []
    found = tomllib.loads(all_of_it)
    names = [key for key in KEYS if user or f"\n{key.path[-1]} = " in all_of_it]
    assert len(names) > 10
    for table in LISTS:
        assert table.name in found or not user
    assert max(map(len, text.split("\n"))) <= 125


def test_every_row_is_told_to_users() -> None:
    for key in KEYS:
        assert key.help[:1].islower() or key.help[:1] == "`", key.name
        assert not key.help.endswith("."), key.name
        assert key.default is not None or key.example or key.path in packaged_values(), (
            f"{key.name} has nothing to show"
        )
        if len(key.path) > 1:
            assert SECTIONS.get(key.path[0]), f"{key.path[0]} is not explained"
        if key.default is not None:
            assert key.fault(key.default) is None, key.name
    for table in LISTS:
        assert table.example, table.name
    assert len(SHAPES) == len(KEYS)
    assert len(ENTRIES) == len(LISTS)
    assert len(VARIABLES) == len([key for key in KEYS if key.variable])
    assert all(name.startswith("RINGFENCE_") for name in VARIABLES)
    assert json.loads(schema_text()) == make_schema()
