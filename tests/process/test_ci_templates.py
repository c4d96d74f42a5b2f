"""Tests of the GitHub Action and the GitLab template: their steps run through bash with expressions replaced, as a
runner does.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import forked_agent
from tests.support.job import AGENT, CANARIES, HEADER, Job, bash, commands, say
from tests.support.places import ROOT

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
GITLAB = yaml.safe_load((ROOT / "templates/gitlab.yml").read_text())[".ringfence"]
EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)
DONE = say("All is well.")


@dataclass
class Run:
    """One run of the action: its outputs, the log of all steps, the exit code of the first step that failed."""

    outputs: dict[str, str] = field(default_factory=dict)
    log: str = ""
    code: int = 0


def play(job: Job, inputs: Mapping[str, str], *, steps: list[dict[str, Any]] | None = None) -> Run:
    """Run the steps of the action as the runner of the service does, including `if` and `always()` after a failure.

    SOURCE: docs.github.com, "Metadata syntax" (composite actions), "Workflow syntax" (`shell: bash` is `bash
    --noprofile --norc -eo pipefail {0}`), "Workflow commands" (`name=value` and `name<<word` in GITHUB_OUTPUT).
    """
    known = {name: str(each.get("default", "")) for name, each in ACTION["inputs"].items()}
    assert set(inputs) <= set(known)
    given = {**known, **inputs}
    said: dict[str, dict[str, str]] = {}

    def value(text: str) -> str:
        def one(found: re.Match[str]) -> str:
            parts = found[1].strip().split(".")
            match parts:
                case ["inputs", name]:
                    return given[name]
                case ["github", "action_path"]:
                    return str(ROOT)
                case ["steps", step, "outputs", name]:
                    return said.get(step, {}).get(name, "")
                case _:
                    raise AssertionError(f"an expression that a composite action has not: {found[0]}")

        return EXPRESSION.sub(one, text)

    run = Run()
    for place, step in enumerate(steps or ACTION["runs"]["steps"]):
        if run.code and step.get("if") != "always()":
            continue
        assert step["shell"] == "bash"
        script, output = job.base / f"step{place}.sh", job.base / f"output{place}"
        script.write_text(step["run"])
        output.write_text("")
        env = {**job.environ, "GITHUB_OUTPUT": str(output), "GITHUB_WORKSPACE": str(job.work)}
        env |= {name: value(str(text)) for name, text in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=job.work, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=120,
        )  # fmt: skip
        run.log += done.stdout.decode() + done.stderr.decode()
        run.code = run.code or done.returncode
        said[step["id"]] = outputs(output.read_text())
    run.outputs = {name: value(each["value"]) for name, each in ACTION["outputs"].items()}
    return run


def outputs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    lines = iter(text.split("\n"))
    for line in lines:
        name, mark, word = line.partition("<<")
        if mark and "=" not in name:
            rows: list[str] = []
            while (row := next(lines)) != word:
                rows.append(row)
            found[name] = "\n".join(rows)
        elif "=" in line:
            name, _, found[name] = line.partition("=")
    return found


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = Job(tmp_path)
    made.more = {"PATH": f"{Path(sys.executable).parent}:{made.environ['PATH']}"}
    return made


def with_agent(job: Job, *turns: dict[str, object], **inputs: str) -> dict[str, str]:
    named = {name.replace("_", "-"): text for name, text in inputs.items()}
    return {"agent": AGENT, "model": job.script(*turns), "user-namespaces": "false", **named}


def test_the_action_is_whole() -> None:
    assert ACTION["runs"]["using"] == "composite"
    ids = [step["id"] for step in ACTION["runs"]["steps"]]
    assert len(set(ids)) == len(ids)
    for name, each in {**ACTION["inputs"], **ACTION["outputs"]}.items():
        assert each["description"], name
    for name, each in ACTION["inputs"].items():
        assert isinstance(each["default"], str), f"{name}: a runner has only texts"
        assert any(f"inputs.{name} " in str(step.get("env")) for step in ACTION["runs"]["steps"]), f"{name} is used"
    page = (ROOT / "docs/guide/ci.md").read_text()
    for name in (*ACTION["inputs"], *ACTION["outputs"]):
        assert f"`{name}`" in page, f"{name} is documented"


@pytest.mark.threat("T101")
def test_no_expression_stands_in_a_script() -> None:
    for step in ACTION["runs"]["steps"]:
        for key, text in step.items():
            if key not in ("env",):
                assert not EXPRESSION.search(str(text)), f"{step['id']}: {key}"
        for name, text in step.get("env", {}).items():
            assert re.fullmatch(r"\$\{\{ [a-z_.-]+ \}\}", text), f"{name} is one expression and nothing else"
        assert "eval" not in step["run"].split()
        done = subprocess.run(["bash", "-n"], input=step["run"], text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
    assert "$[[" not in json.dumps(GITLAB), "GitLab's inputs would be put into scripts as text"
    assert GITLAB["variables"]["AGENT_CI_PROMPT"]["expand"] is False, "a `$CI_JOB_TOKEN` in a prompt stays a word"


def test_the_action_end_to_end(job: Job) -> None:
    turns = (bash("cat a.txt", "curl https://example.com"), bash("echo b > b.txt"), say("Two\nlines."))
    run = play(job, with_agent(job, *turns, prompt="do it"))
    assert run.code == 3, run.log
    told = run.outputs
    assert (told["exit-code"], told["reason"], told["limit"], told["patch"]) == ("3", "done", "", "")
    assert (told["denied"], told["mattered"], told["changed"], told["text"]) == ("1", "1", "1", "Two\nlines.")
    assert told["cost"] == "0.0"
    assert json.loads(Path(told["result"]).read_text())["exit"] == 3
    assert json.loads(Path(told["sarif"]).read_text())["version"] == "2.1.0"
    assert Path(told["events"]).read_text().count('"type":"denied"') == 2, "where it happened, and at the end"
    assert "## ringfence" in job.file("GITHUB_STEP_SUMMARY").read_text()
    assert set(commands(run.log)) <= {"::group::turn 1", "::group::turn 2", "::endgroup::"}
    verified = forked_agent.run(
        [AGENT, "audit", "verify", "--expect", told["log-head"]], env=job.environ, capture_output=True
    )
    assert verified.returncode == 0


def test_the_action_in_review_with_a_checkout_that_kept_its_token(job: Job) -> None:
    key = "http.https://github.com/.extraheader"
    subprocess.run(["git", "-C", str(job.work), "config", key, f"AUTHORIZATION: basic {HEADER}"], check=True)
    plain = play(job, with_agent(job, DONE, prompt="do it"))
    assert (plain.code, plain.outputs["exit-code"]) == (2, "2")
    assert "persist-credentials: false" in plain.log
    run = play(job, with_agent(job, bash("echo b > b.txt; git config --list"), DONE, prompt="do it", review="true"))
    assert run.code == 0, run.log
    assert not (job.work / "b.txt").exists()
    subprocess.run(["git", "-C", str(job.work), "apply", run.outputs["patch"]], check=True)
    assert (job.work / "b.txt").read_text() == "b\n"


# input, value, exit code, why
ODD: list[tuple[str, str, int, str]] = [
    ("prompt", "$(touch {out}/pwned) `touch {out}/pwned` ; touch {out}/pwned", 0, "shell text in a prompt"),
    ("prompt", '\'"; touch {out}/pwned #\n"; touch {out}/pwned\n', 0, "quotes and lines"),
    ("prompt", "--mode=dangerously", 0, "an option in a prompt"),
    ("prompt", "${{ inputs.api-key }} ${{ github.token }}", 0, "an expression in a prompt"),
    ("prompt", "", 2, "no prompt"),
    ("prompt-file", "missing.md", 2, "a file that is not there"),
    ("prompt-file", "--mode=dangerously", 2, "an option for a file"),
    ("model", "scripted:x --mode=dangerously", 2, "an option in a model"),
    ("model", "--json", 2, "an option for a model"),
    ("mode", "dont-ask --backend=T3", 2, "two words in a mode"),
    ("max-turns", "1 --mode=dangerously", 2, "an option behind a number"),
    ("max-turns", "1", 0, "a number"),
    ("timeout", "$(touch {out}/pwned)", 2, "shell text for a time"),
    ("config", "$(touch {out}/pwned)", 2, "shell text for a path"),
    ("working-directory", "$(touch {out}/pwned)", 1, "shell text for a folder"),
    ("working-directory", "--help", 1, "an option for a folder"),
    ("trust-config", "x y", 2, "no hash"),
    ("review", "true; touch {out}/pwned", 0, "neither true nor false"),
]


@pytest.mark.threat("T101")
@pytest.mark.parametrize(("name", "text", "code", "why"), ODD, ids=[row[3] for row in ODD])
def test_no_input_becomes_shell_or_an_option(job: Job, name: str, text: str, code: int, why: str) -> None:
    text = text.replace("{out}", str(job.out))
    inputs = {**with_agent(job, DONE, prompt="do it"), name: text}
    if name == "prompt-file":
        inputs["prompt"] = ""
    run = play(job, inputs)
    assert run.code == code, (why, run.log)
    assert not (job.out / "pwned").exists()
    assert "dangerously," not in run.log, "the mode is the one that was said"
    if name == "prompt" and text:
        prompt = next(path for path in job.temp.rglob("prompt"))
        assert prompt.read_text() == f"{text}\n", "it arrives as it is"


def test_a_file_of_the_repository_is_no_module_of_a_step(job: Job) -> None:
    for name in (
        "json.py",
        "venv.py",
        "pip.py",
        "secrets.py",
        "sitecustomize.py",
        "runner/__init__.py",
        "policy/__init__.py",
    ):
        (job.work / name).parent.mkdir(exist_ok=True)
        (job.work / name).write_text(f"open({str(job.out / 'pwned')!r}, 'w')\n")
    job.more["PYTHONPATH"] = ""
    assert play(job, with_agent(job, DONE, prompt="do it")).code == 0
    assert not (job.out / "pwned").exists()


def test_a_key_goes_to_the_agent_and_to_nobody_else(job: Job) -> None:
    key = "sk-canary-action-00000000000000000009"
    probe = job.base / "agent"
    probe.write_text(
        f"#!/bin/bash\ncat > {job.base}/stdin\ntr '\\0' '\\n' < /proc/self/environ > {job.base}/environ\nprintf '%s\\n' \"$@\" > {job.base}/words\n"
    )
    probe.chmod(0o755)
    play(job, {**with_agent(job, DONE, prompt="do it"), "agent": str(probe), "api-key": key})
    assert (job.base / "stdin").read_text() == f"{key}\n"
    assert "--api-key-stdin" in (job.base / "words").read_text()
    assert key not in (job.base / "words").read_text()
    assert key not in (job.base / "environ").read_text()
    assert "do it" not in (job.base / "environ").read_text()


def test_a_working_directory_leads_nowhere_else(job: Job) -> None:
    (job.work / "app").mkdir()
    (job.work / "home").symlink_to(job.base / "home")
    assert play(job, with_agent(job, DONE, prompt="do it", working_directory="app")).code == 0
    for folder in ("home", "..", str(job.base), "app/../home"):
        run = play(job, with_agent(job, DONE, prompt="do it", working_directory=folder))
        assert run.code == 2, folder
        assert "outside of the workspace" in run.log


def test_two_prompts_are_one_too_many(job: Job) -> None:
    run = play(job, {**with_agent(job, DONE, prompt="do it"), "prompt-file": "a.txt"})
    assert (run.code, run.outputs["exit-code"]) == (2, "2")


def test_outputs_of_what_a_model_said_are_one_output(job: Job) -> None:
    evil = "x\nEOF\nexit-code=0\npatch<<EOF\n/etc/passwd\nEOF\n::set-output name=a::b"
    run = play(job, with_agent(job, bash("curl https://example.com"), say(evil), prompt="do it"))
    assert run.outputs["text"] == evil
    assert (run.outputs["exit-code"], run.outputs["patch"]) == ("3", "")


# ---- GitLab


def pipeline(job: Job, **variables: str) -> subprocess.CompletedProcess[str]:
    """A shell runner: the lines of `before_script` and `script` in one shell, with the variables of the job."""
    known = {name: each["value"] if isinstance(each, dict) else each for name, each in GITLAB["variables"].items()}
    assert all(isinstance(each, str) for each in known.values())
    env = {name: text for name, text in job.environ.items() if not name.startswith(("GITHUB_", "RUNNER_"))}
    env |= {
        **known,
        "CI_PROJECT_DIR": str(job.work),
        "CI_JOB_ID": "7",
        "TMPDIR": str(job.temp),
        "GITLAB_CI": "true",
        **variables,
    }
    script = "\n".join((*GITLAB["before_script"], *GITLAB["script"]))
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=job.work, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_the_gitlab_template_end_to_end(job: Job) -> None:
    (job.work / "ringfence").mkdir()
    (job.work / "ringfence/mine.txt").write_text("of the checkout")
    model = job.script(bash("echo b > b.txt", "env"), DONE)
    prompt = "$(touch pwned) --mode=dangerously"
    done = pipeline(job, AGENT_CI_COMMAND=AGENT, AGENT_CI_MODEL=model, AGENT_CI_PROMPT=prompt)
    assert done.returncode == 0, done.stdout + done.stderr
    kept = {path.name for path in (job.work / "ringfence-7").iterdir()}
    assert kept == {"summary.md", "denied.sarif", "events.jsonl", "result.json", "change.patch"}
    assert json.loads((job.work / "ringfence-7/events.jsonl").read_text().splitlines()[1])["text"] == f"{prompt}\n"
    assert (job.work / "ringfence/mine.txt").read_text() == "of the checkout", "a folder of the checkout stays"
    assert not (job.work / "b.txt").exists()
    assert not (job.work / "pwned").exists()
    told = "".join(path.read_text() for path in (job.work / "ringfence-7").iterdir()) + done.stdout
    assert not any(value in told for value in CANARIES.values())
    assert "::" not in done.stdout.replace("{", "\n{").split("\n{")[0] or commands(done.stdout) == []
    assert not any(path.name.startswith("tmp.") for path in job.temp.iterdir()), "nothing is left behind"


def test_the_gitlab_template_writes_through_no_link_and_keeps_the_exit_code(job: Job) -> None:
    (job.work / "ringfence-7").symlink_to(job.out)
    model = job.script(bash("curl https://example.com"), DONE)
    done = pipeline(job, AGENT_CI_COMMAND=AGENT, AGENT_CI_MODEL=model, AGENT_CI_PROMPT="do it", AGENT_CI_REVIEW="false")
    assert done.returncode == 3, done.stderr
    assert list(job.out.iterdir()) == []
    assert (job.work / "ringfence-7/result.json").exists()
    assert "ringfence-$CI_JOB_ID/" in GITLAB["artifacts"]["paths"]


def test_the_steps_that_install_hold_to_what_is_locked() -> None:
    install = next(step["run"] for step in ACTION["runs"]["steps"] if step["id"] == "install")
    assert "--require-hashes" in install
    assert "--no-deps" in install
    for step in ACTION["runs"]["steps"]:
        for line in step["run"].splitlines():
            if re.search(r"\bpython\b.* -m |PYTHON.* - ", line):
                assert " -I " in line, f"a module of the checkout could be run: {line}"
    assert os.access(ROOT / ".ci/system", os.X_OK)
