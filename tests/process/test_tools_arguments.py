"""Tests of tool arguments from a model and of the Problem for wrong ones: short, exact, with an example that works."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model.verdict import Problem
from runner.engine.context.context import tool_specs
from tools import TOOLS
from tools.arguments import parse
from tools.paths import SeenFiles
from tools.tool import Arguments, ModelTool, find


def tool(name: str) -> ModelTool:
    found = find(TOOLS, name)
    assert not isinstance(found, Problem)
    return found


HUGE = "x" * (10 << 20)
BASH_KEYS = "`command`, `timeout`, `background`, `pty`, `description`"

# fmt: off
FAULTS: list[tuple[str, dict[str, object] | None, str, str, str]] = [
    ("read", {},                                "", "`path` is missing",                                   "missing"),
    ("read", {"path": 7},                       "", "`path` must be text, not a number",                   "wrong type"),
    ("read", {"path": None},                    "", "`path` must be text, not null",                       "null for a required one"),
    ("read", {"path": ["a"]},                   "", "`path` must be text, not a list",                     "a list of one"),
    ("read", {"path": {"a": 1}},                "", "`path` must be text, not an object",                  "an object"),
    ("read", {"path": "a", "offset": "3"},      "", "`offset` must be a whole number, not text",           "digits are no number"),
    ("read", {"path": "a", "offset": 1.5},      "", "`offset` must be a whole number, not a number",       "a fraction"),
    ("read", {"path": "a", "offset": True},     "", "`offset` must be a whole number, not true or false",  "true is no 1"),
    ("read", {"path": "a", "offset": 0},        "", "`offset` must be at least 1",                         "lines count from 1"),
    ("read", {"path": "a", "limit": 10**9},     "", "`limit` must be at most 100,000",                     "too many lines"),
    ("read", {"path": "a", "limit": 10**5000},  "", "`limit` must be at most 100,000",                     "an absurd number"),
    ("bash", {"command": "a", "timeout": 0},    "", "`timeout` must be more than 0",                       "no time at all"),
    ("bash", {"command": "a", "timeout": 601},  "", "`timeout` must be at most 600",                       "too long"),
    ("bash", {"command": "a", "timeout": float("nan")}, "", "`timeout` must be a finite number",           "not a number"),
    ("bash", {"command": "a", "timeout": "5"},  "", "`timeout` must be a number, not text",                "a number as text"),
    ("bash", {"cmd": "ls"},                     "", "`cmd` is not an argument of this tool; did you mean `command`?; "
                                                    "`command` is missing",                                "another name"),
    ("bash", {"command": "a", "zzz": 1},        "", f"`zzz` is not an argument of this tool (it has {BASH_KEYS})", "extra"),
    ("bash", {"command": "a", "\ud800\n": 1},   "", f"`\\ud800\\n` is not an argument of this tool (it has {BASH_KEYS})", "an odd name"),
    ("bash", {"command": HUGE},                 "", "`command` is 10,485,760 characters long; at most 2,000,000 are allowed", "10 MB"),
    ("write", {"path": "a", "content": HUGE},   "", "`content` is 10,485,760 characters long; at most 5,000,000 are allowed", "10 MB"),
    ("read", {"path": "a\0b"},                  "", "`path` has a NUL character, at character 2: leave it out", "NUL"),
    ("read", {"path": "\ud800"},                "", "`path` has half of a surrogate pair, at character 1: write the whole character", "lone surrogate"),
    ("edit", {"path": "a", "old_string": "a", "new_string": "b", "replace_all": 1},
                                                "", "`replace_all` must be true or false, not a number",   "1 is not true"),
    ("grep", {"pattern": ""},                   "", "`pattern` must not be empty",                         "empty"),
    ("edit", {"a": 1, "b": 2, "c": 3},          "", "; and 2 more",                                        "a list that ends"),
    ("read", None, "",                              "the call has no arguments",                     "nothing"),
    ("read", None, "[1]",                           "they are a list, not an object",                      "a list"),
    ("read", None, '"a"',                           "they are text, not an object",                        "text"),
    ("read", None, '{"path": "a',                   "they are not valid JSON: unterminated string starting at character 10, "
                                                    "near `{\"path\": \"a`",                               "cut off"),
    ("read", None, '{"path": \ud800}',              "they are not valid JSON: expecting value at character 10, near `{\"path\": \\ud800}`", "odd"),
    ("read", None, "[" * 1_000_000,                 "they are JSON with a number or a nesting that is too large to read", "nested"),
    ("bash", None, '{"command": "a", "timeout": NaN}',   "`NaN`, in the arguments, is not a JSON number", "no number"),
    ("bash", None, '{"command": "a", "timeout": -1e999}', "`-1e999`, in the arguments, is not a JSON number", "beyond all numbers"),
    ("bash", None, '{"command": ' + "[" * 99 + "]" * 99 + "}", "they are nested too deeply",                    "nested, and whole"),
    ("read", None, "1" * 10_000,                    "they are JSON with a number or a nesting that is too large to read", "digits"),
]
# fmt: on


@pytest.mark.threat("T47")
@pytest.mark.threat("T26")
@pytest.mark.parametrize(("name", "arguments", "raw", "fault", "why"), FAULTS, ids=[f"{r[0]}: {r[4]}" for r in FAULTS])
def test_faults(name: str, arguments: dict[str, object] | None, raw: str, fault: str, why: str) -> None:
    problem = parse(tool(name), arguments, raw)
    assert isinstance(problem, Problem)
    assert fault in problem.why
    assert len(str(problem)) < 1000
    str(problem).encode()
    assert problem.what == f"the arguments of `{name}` are not valid"
    assert tool(name).example in problem.fix


@pytest.mark.parametrize("name", [tool.name for tool in TOOLS])
def test_the_example_in_the_problem_works(name: str) -> None:
    arguments = parse(tool(name), json.loads(tool(name).example))
    assert isinstance(arguments, Arguments)
    assert not isinstance(tool(name).plan(arguments, "/w", SeenFiles()), Problem)


def test_null_is_the_same_as_leaving_out() -> None:
    assert parse(tool("read"), {"path": "a", "offset": None, "limit": None}) == parse(tool("read"), {"path": "a"})
    assert parse(tool("grep"), {"pattern": "a", "glob": None}) == parse(tool("grep"), {"pattern": "a"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = sorted({key for one in TOOLS for key in one.Args.model_fields})


@pytest.mark.threat("T26")
@given(
    chosen=st.sampled_from(TOOLS),
    arguments=st.none()
    | st.dictionaries(st.sampled_from(KEYS) | st.text(st.characters(), max_size=8), JSON, max_size=6),
    raw=st.text(st.characters(), max_size=30),
)
def test_any_json_is_arguments_or_a_short_problem(
    chosen: ModelTool, arguments: dict[str, object] | None, raw: str
) -> None:
    parsed = parse(chosen, arguments, raw)
    if isinstance(parsed, Problem):
        assert len(str(parsed)) < 1500
        str(parsed).encode()
    else:
        chosen.plan(parsed, "/w", SeenFiles())


def test_find_names_the_tools() -> None:
    problem = find(TOOLS, "read_file\x1b")
    assert isinstance(problem, Problem)
    assert problem.what == "there is no tool `read_file\\x1b`"
    assert problem.why == (
        "the tools are `bash`, `read`, `write`, `edit`, `notebook_edit`, `glob`, `grep`, `ls`, `bash_output`, `bash_input`, "
        "`bash_kill`"
    )
    long = find(TOOLS, "x" * 1000)
    assert isinstance(long, Problem)
    assert len(str(long)) < 300


# name, further tools, the tool that is suggested, why
MEANT = [
    ("plan",               ("propose_plan",), "`propose_plan`", "a habit of another agent"),
    ("exit_plan_mode",     ("propose_plan",), "`propose_plan`", "another"),
    ("ExitPlanMode",       ("propose_plan",), "`propose_plan`", "in another spelling"),
    ("propose_pln",        ("propose_plan",), "`propose_plan`", "a slip"),
    ("exit_plan_mode",     (),                None,             "outside of plan mode there is no such tool"),
    ("propose_plan",       (),                None,             "nor by its own name"),
    ("Bash",               (),                "`bash`",         "only the case differs"),
    ("run_shell_command",  (),                "`bash`",         "a habit of another agent"),
    ("read_file",          (),                "`read`",         "another"),
    ("str_replace",        (),                "`edit`",         "another"),
    ("weather",            (),                None,             "nothing is near"),
    ("",                   (),                None,             "no name at all"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "others", "meant", "why"), MEANT, ids=[f"{row[0]}-{row[3]}" for row in MEANT])
def test_a_wrong_name_of_a_tool_leads_to_the_right_one(
    name: str, others: tuple[str, ...], meant: str | None, why: str
) -> None:
    problem = find(TOOLS, name, others)
    assert isinstance(problem, Problem)
    assert all(f"`{each}`" in problem.why for each in others), "the list is the one in force"
    assert problem.fix == (
        f"did you mean {meant}? Call it by this exact name" if meant else "call one of these by its exact name"
    ), why


def test_specs_are_plain_json_schema() -> None:
    for spec in tool_specs(TOOLS):
        text = json.dumps(spec.schema)
        assert "anyOf" not in text
        assert "title" not in text
        properties = spec.schema["properties"]
        assert isinstance(properties, dict)
        assert all(field.get("type") and field.get("description") for field in properties.values())
        assert spec.schema["additionalProperties"] is False
        assert len(spec.description) < 900
        assert spec.description.isascii()
    bash = tool_specs(TOOLS)[0].schema
    assert bash["required"] == ["command"]
    assert bash["properties"] == {
        "command": {"description": "Text of the bash script.", "type": "string"},
        "timeout": {
            "default": 120,
            "description": "Time in seconds after which the script is ended.",
            "exclusiveMinimum": 0,
            "maximum": 600,
            "type": "number",
        },
        "background": {
            "default": False,
            "description": "Start the script as a process that stays, and return its id at once.",
            "type": "boolean",
        },
        "pty": {
            "default": False,
            "description": "Run the script in a terminal, for programs that need one.",
            "type": "boolean",
        },
        "description": {
            "description": "Purpose of the script in five to ten words, shown to the user.",
            "type": "string",
        },
    }


def test_tools_do_not_know_the_sandbox() -> None:
    """Planning and wording need neither the sandbox nor the runner."""
    import subprocess

    code = "import sys, tools; print([m for m in sys.modules if m.split('.')[0] in ('sandbox', 'runner')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
