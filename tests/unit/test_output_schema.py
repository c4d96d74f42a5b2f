"""JSON Schemas of answers: which can be used, what an answer may be, and schemas that attack the program."""

import json
import os
import socket
from pathlib import Path

import pytest

from runner.engine.output_schema import OutputSchema, StructuredAnswer, read_output_schema, repair_text
from runner.problems import Exit, Stopped

REVIEW = {
    "type": "object",
    "properties": {
        "verdict": {"enum": ["good", "bad"]},
        "score": {"type": "integer", "minimum": 0, "maximum": 10},
        "findings": {"type": "array", "items": {"$ref": "#/$defs/finding"}, "uniqueItems": True},
    },
    "required": ["verdict"],
    "additionalProperties": False,
    "$defs": {"finding": {"type": "object", "properties": {"path": {"type": "string", "pattern": "^[a-z/.]+$"}}}},
}


def schema(of: object) -> OutputSchema:
    return read_output_schema(json.dumps(of), Path("/"))


# fmt: off
ANSWERS: list[tuple[str, object, str, str]] = [
    ('{"verdict": "good"}',                       {"verdict": "good"}, "",                              "the least"),
    (' {"verdict": "good", "score": 3}\n',        {"verdict": "good", "score": 3}, "",                  "blanks around it"),
    ('```json\n{"verdict": "bad"}\n```',          {"verdict": "bad"}, "",                               "in a fence"),
    ('Here it is:\n```\n{"verdict": "bad"}\n```', {"verdict": "bad"}, "",                               "in the only fence"),
    ('```json\n{"verdict": "bad"}\n```\n```json\n{"verdict": "good"}\n```', None, "not one JSON value", "in one of two"),
    ("good",                                      None, "not one JSON value",                           "no JSON"),
    ("",                                          None, "there is no text",                             "nothing"),
    ('{"verdict": "good"} and more',              None, "not one JSON value",                           "a sentence after it"),
    ('{"verdict": "good", "verdict": "bad"}',     None, "is in it twice",                               "a name twice"),
    ('{"verdict": NaN}',                          None, "not one JSON value",                           "no number"),
    ("[" * 100_000,                               None, "not one JSON value",                           "nested without end"),
    ('{"verdict": "fine"}',                       None, "at `$.verdict`",                               "another value"),
    ('{"score": 11}',                             None, "is a required property",                       "a missing field"),
    ('{"verdict": "good", "score": 11}',          None, "at `$.score`: 11 is greater",                  "a large number"),
    ('{"verdict": "good", "score": true}',        None, "is not of type 'integer'",                     "a truth value is no number"),
    ('{"verdict": "good", "more": 1}',            None, "it may not have 'more'",                       "another field"),
    ('{"verdict": "good", "findings": [{"path": "A"}]}', None, "at `$.findings[0].path`: 'A' does not match", "a pattern, by a reference"),
    ('{"verdict": "good", "findings": [{}, {}]}', None, "equal items",                                  "equal items"),
]
# fmt: on


@pytest.mark.parametrize(("text", "value", "fault", "why"), ANSWERS, ids=[row[3] for row in ANSWERS])
def test_an_answer_is_checked(text: str, value: object, fault: str, why: str) -> None:
    found = schema(REVIEW).answer(text)
    assert bool(found.faults) is bool(fault), why
    if fault:
        assert fault in "; ".join(found.faults)
    else:
        assert found == StructuredAnswer(value)
        assert json.loads(found.line) == value


# fmt: off
FORMS: list[tuple[object, str, bool, str]] = [
    (True,                                                          "3",      True,  "everything is valid"),
    ({"type": "string"},                                            '"a"',    True,  "a text alone"),
    ({"type": ["array", "null"]},                                   "null",   True,  "null"),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "type": "integer"}, "1", True, "an earlier draft"),
    ({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True}, "1", False, "a keyword of its draft"),
    ({"uniqueItems": True},                                         "[1, true]", True, "1 is not true"),
    ({"uniqueItems": True},                                         "[1, 1.0]", False, "1 is 1.0"),
    ({"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False}, '{"x1": 1}', True, "a name by pattern"),
    ({"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False}, '{"y": 1}', False, "another name"),
    ({"patternProperties": {"^x": {"type": "integer"}}},            '{"x1": "a"}', False, "its value"),
    ({"additionalProperties": {"type": "integer"}},                 '{"a": "b"}', False, "values of other names"),
    ({"$defs": {"t": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#/$defs/t"}}]}}, "$ref": "#/$defs/t"}, "[[null]]", True, "a tree"),
    ({"properties": {"$ref": {"type": "string"}}},                  '{"$ref": "a"}', True, "a field that is called $ref"),
    ({"const": {"$ref": "https://example.org/a"}},                  '{"$ref": "https://example.org/a"}', True, "a value and no reference"),
    ({"multipleOf": 0.01},                                          "1e400",  False, "a number beyond all numbers"),
]
# fmt: on


@pytest.mark.parametrize(("of", "text", "valid", "why"), FORMS, ids=[row[3] for row in FORMS])
def test_schemas_of_all_kinds(of: object, text: str, valid: bool, why: str) -> None:
    assert (not schema(of).answer(text).faults) is valid, why


# fmt: off
BAD: list[tuple[str, str, str]] = [
    ("[1]",                                                      "an object, true or false",      "a list"),
    ('{"type": 3}',                                              "at `$.type`",                   "no schema"),
    ('{"type": "text"}',                                         "at `$.type`",                   "no type"),
    ('{"type": "string", "type": "integer"}',                    "in it twice",                   "a key twice"),
    ('{"a": }',                                                  "not valid JSON",                "no JSON"),
    ("{" + '"not": {' * 3000 + "}" * 3001,                       "nested too deeply",             "nested without end"),
    ('{"$schema": "https://example.org/mine"}',                  "no known draft",                "another language"),
    ('{"$ref": "https://example.org/schema.json"}',              "leaves it",                     "a remote reference"),
    ('{"items": {"$ref": "file:///etc/passwd"}}',                "leaves it",                     "a file"),
    ('{"items": {"$dynamicRef": "https://example.org/a"}}',      "leaves it",                     "a dynamic reference"),
    ('{"$ref": "other.json"}',                                   "leaves it",                     "a relative reference"),
    ('{"$id": "https://example.org/a", "items": {"$ref": "b"}}', "leaves it",                     "relative to an address"),
    ('{"$ref": "#/$defs/none"}',                                 "leads nowhere",                 "a missing definition"),
    ('{"properties": {"a": {"$ref": "#/$defs/none"}}}',          "leads nowhere",                 "which no sample reaches"),
    ('{"$ref": "#"}',                                            "without end",                   "itself"),
    ('{"pattern": "(a)\\\\1"}',                                  "is not possible (RE2)",         "a back reference"),
    ('{"pattern": "(?=a)b"}',                                    "is not possible (RE2)",         "a look ahead"),
    ('{"patternProperties": {"(?!a)": {}}}',                     "is not possible (RE2)",         "in a name"),
    ('{"patternProperties": {"a": {}}, "unevaluatedProperties": false}', "use `additionalProperties`", "where the library uses its own patterns"),
    ("/etc/no such file",                                        "cannot be read",                "no file"),
    ("/dev/zero",                                                "no plain file",                 "a device"),
    ("/etc",                                                     "cannot be read",                "a folder"),
    ("a\0b",                                                     "NUL byte",                      "no name of a file"),
]
# fmt: on


@pytest.mark.threat("T253")
@pytest.mark.parametrize(("given", "why", "case"), BAD, ids=[row[2] for row in BAD])
def test_a_schema_that_cannot_be_used_is_a_usage_error(given: str, why: str, case: str) -> None:
    with pytest.raises(Stopped) as raised:
        read_output_schema(given, Path("/"))
    assert raised.value.exit_code == Exit.USAGE, case
    assert why in raised.value.problem.why


@pytest.mark.threat("T253")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Stopped, match="output schema"):
        read_output_schema("pipe", tmp_path)
    (tmp_path / "s.json").write_text('\ufeff{"type": "null"}')
    assert not read_output_schema("s.json", tmp_path).answer("null").faults
    (tmp_path / "large.json").write_text(json.dumps({"description": "x" * 300_000}))
    with pytest.raises(Stopped, match="output schema"):
        read_output_schema("large.json", tmp_path)


@pytest.mark.threat("T253")
def test_no_pattern_takes_more_than_linear_time() -> None:
    """Each of these takes hours with a matcher that tries every way."""
    text = json.dumps("a" * 50_000 + "!")
    assert schema({"pattern": "^(a+)+$"}).answer(text).faults
    names = json.dumps({"a" * 50_000 + "!": 1})
    assert schema({"patternProperties": {"^(a|a)*$": False}, "additionalProperties": False}).answer(names).faults
    assert schema({"propertyNames": {"pattern": "^(a|aa)+$"}}).answer(names).faults


@pytest.mark.threat("T253")
def test_a_schema_that_doubles_its_work_ends_in_an_error() -> None:
    """Thirty levels, each of which refers to the next one twice: 2^30 steps."""
    levels: dict[str, object] = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(30)
    }
    levels["d30"] = {"type": "object"}
    with pytest.raises(Stopped) as raised:
        schema({"$defs": levels, "$ref": "#/$defs/d0"})
    assert "steps" in raised.value.problem.why
    # Only the items of a list are doubled, so that no sample reaches them.
    found = schema({"$defs": levels, "items": {"items": {"items": {"$ref": "#/$defs/d18"}}}}).answer(
        json.dumps([[[{}] * 100]])
    )
    assert "steps" in found.faults[0]


@pytest.mark.threat("T253")
def test_many_items_are_compared_quickly() -> None:
    items = json.dumps([{"a": n} for n in range(30_000)])
    assert not schema({"uniqueItems": True}).answer(items).faults


@pytest.mark.threat("T253")
def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a connection was made")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for name in ("$ref", "$dynamicRef"):
        with pytest.raises(Stopped):
            schema({"items": {name: "http://127.0.0.1:1/schema"}})


def test_the_model_is_told_what_is_wrong() -> None:
    assert json.dumps(REVIEW) in schema(REVIEW).prompt
    text = repair_text(("a", "b"), 1)
    assert "(this is the last try):\n- a\n- b\n" in text
    assert "2 tries are left" in repair_text(("a",), 2)
