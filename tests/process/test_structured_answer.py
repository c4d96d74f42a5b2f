"""`--output-schema` of `agent run` and `agent ci`: one valid JSON value, or an error."""

import json
from pathlib import Path

import pytest

from tests.support.cli_harness import CliHarness

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
GIVEN = f"--output-schema={json.dumps(SCHEMA)}"
GOOD = {"text": '```json\n{"n": 42}\n```'}
BAD = {"text": "The number is 42."}
WRONG = {"text": '{"n": "42"}'}
CALL = {"text": "I look.", "calls": [{"name": "ls", "arguments": {}}]}


@pytest.fixture
def place(tmp_path: Path) -> CliHarness:
    made = CliHarness(tmp_path)
    made.work.mkdir()
    (tmp_path / "home").mkdir()
    return made


def model(place: CliHarness, *turns: dict[str, object]) -> str:
    (place.base / "script.json").write_text(json.dumps({"turn": turns}))
    return f"--model=scripted:{place.base}/script.json"


# fmt: off
RUNS: list[tuple[list[dict[str, object]], int, str, str, str]] = [
    ([GOOD],                        0, '{"n": 42}\n', "",                              "a valid answer in a fence"),
    ([CALL, GOOD],                  0, '{"n": 42}\n', "I look.",                       "after a call"),
    ([BAD, GOOD],                   0, '{"n": 42}\n', "not valid against the output schema", "after one repair"),
    ([BAD, CALL, WRONG, GOOD],      0, '{"n": 42}\n', "'42' is not of type 'integer'", "after several, with a call"),
    ([BAD, BAD, WRONG, WRONG],      1, "",            "not valid against the output schema", "never valid"),
    ([{**GOOD, "stop": "refusal"}], 1, "",            "declined to answer",            "the model declined"),
]
# fmt: on


@pytest.mark.parametrize(("turns", "code", "out", "err", "why"), RUNS, ids=[row[4] for row in RUNS])
def test_standard_output_is_the_value_or_nothing(
    place: CliHarness, turns: list[dict[str, object]], code: int, out: str, err: str, why: str
) -> None:
    done = place.agent("run", model(place, *turns), GIVEN, "--last-message", "last.json", "go")
    assert (done.returncode, done.stdout) == (code, out), done.stderr
    assert err in done.stderr
    assert (place.work / "last.json").read_text() == out


def test_a_limit_leaves_no_half_of_a_value(place: CliHarness) -> None:
    done = place.agent("run", model(place, WRONG, GOOD), GIVEN, "--max-turns", "1", "go")
    assert (done.returncode, done.stdout) == (5, ""), done.stderr


def test_the_last_event_has_the_value(place: CliHarness) -> None:
    (place.work / "schema.json").write_text(json.dumps(SCHEMA))
    done = place.agent("run", model(place, BAD, GOOD), "--json", "--output-schema", "schema.json", "go")
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["type"], last["output"], last["text"], last["exit"]) == ("run_ended", {"n": 42}, '{"n": 42}', 0)
    done = place.agent("run", model(place, BAD, BAD, BAD, BAD), "--json", "--output-schema", "schema.json", "go")
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["type"], last["output"], last["text"], last["exit"]) == ("run_ended", None, "", 1)
    assert "it is not one JSON value" in last["reason"]


@pytest.mark.threat("T253")
def test_a_bad_schema_is_a_usage_error_before_the_model_is_asked(place: CliHarness) -> None:
    for given in ('{"$ref": "https://example.org/s.json"}', '{"type": 3}', "missing.json"):
        done = place.agent("run", model(place, GOOD), "--output-schema", given, "go")
        assert (done.returncode, done.stdout) == (2, "")
        assert "the output schema cannot be used" in done.stderr
        assert "workspace  " not in done.stderr, "no session was opened"


def test_a_pipeline_has_the_value_in_its_result(place: CliHarness) -> None:
    done = place.agent("ci", model(place, BAD, GOOD), GIVEN, "go")
    result = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, result["output"], result["text"]) == (0, {"n": 42}, '{"n": 42}'), done.stderr
    done = place.agent("ci", model(place, *[BAD] * 4), GIVEN, "go")
    result = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, result["output"], result["text"]) == (1, None, "")


def test_the_schema_may_be_that_of_the_configuration(place: CliHarness) -> None:
    (place.base / "config.toml").write_text(f"output_schema = {json.dumps(json.dumps(SCHEMA))}\n")
    done = place.agent("run", model(place, BAD, GOOD), "--config", str(place.base / "config.toml"), "go")
    assert (done.returncode, done.stdout) == (0, '{"n": 42}\n'), done.stderr
    done = place.agent("ci", model(place, BAD, GOOD), "--config", str(place.base / "config.toml"), "go")
    assert json.loads(done.stdout.splitlines()[-1])["output"] == {"n": 42}
    (place.work / ".ringfence").mkdir()
    (place.work / ".ringfence/config.toml").write_text('output_schema = \'{"type": "null"}\'\n')
    done = place.agent("run", model(place, GOOD), "go")
    assert "```json" in done.stdout, "a repository sets no schema"


def test_a_secret_in_the_value_is_masked(place: CliHarness) -> None:
    token = "ghp_" + "a1B2" * 9
    (place.base / "script.json").write_text(json.dumps({"turn": [{"text": json.dumps({"a": token})}]}))
    done = place.agent(
        "run", f"--model=scripted:{place.base}/script.json", "--json", '--output-schema={"type": "object"}', "go"
    )
    assert token not in done.stdout
    assert isinstance(json.loads(done.stdout.splitlines()[-1])["output"]["a"], str)
