"""Law of `source FILE`: bash itself creates no file that the judgement of the text did not name."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from policy.classify import classify
from policy.model.action import RunScript
from policy.model.assessment import EffectKind
from runner.config import Settings, load
from runner.facts.gather import gather

# Each writes files below the workspace only, and every file that bash writes must be among the judged writes.
# fmt: off
CREATED: tuple[tuple[Mapping[str, str], str, str], ...] = (
    ({"f": "put() { echo x > \"$1\"; }\n"},              ". ./f; put a; put src/b",            "a function"),
    ({"f": "cd src\n"},                                  ". ./f; echo x > a",                  "the folder"),
    ({"f": "cd src || return\nreturn 0\ncd ..\n"},       ". ./f; echo x > a",                  "return"),
    ({"f": "n=a\nput() { echo x > $n; }\n"},             "n=b; . ./f; put; n=c; put",          "a variable of both"),
    ({"f": "for i in \"$@\"; do echo x > \"$i\"; done\n"}, ". ./f a src/b; echo x > c",        "arguments"),
    ({"f": "echo x > \"$1\"\nset -- b\n"},               "set -- q; . ./f a; echo x > \"${1:-e}\"", "arguments that the file sets"),
    ({"f": "set -- a\n"},                                "set -- q; . ./f; echo x > \"$1\"",   "arguments without words"),
    ({"f": ". ./g\ncd ..\n", "g": "cd src\necho x > a\n"}, ". ./f; echo x > b",                "a nested file"),
    ({"f": "echo() { printf x > src/e; }\n"},            ". ./f; echo x; printf x > a",        "a function shadows a builtin"),
    ({"f": "trap 'echo x > a' EXIT\ncd src\n"},          ". ./f; echo x > b",                  "a trap at the end"),
    ({"f": "(cd src; echo x > a)\necho x > b\n"},        ". ./f",                              "a subshell"),
    ({"f": "put() { local d=src; echo x > $d/a; }\nd=.\n"}, ". ./f; put; echo x > $d/b",       "a local variable"),
    ({"f": "cat > a <<EOF\n$n\nEOF\n"},                  "n=1 . ./f; echo x > b",              "a here-document"),
    ({"f": "d=src\n"},                                   "d=. . ./f; echo x > ./${d}a",          "a temporary assignment"),
    ({"f": "set -e\n! true\necho x > b\n"},           "echo x | cat; . ./f; echo x > a",    "errexit"),
    ({"f": "unset -f put\n"},                            "put() { echo x > a; }; . ./f; put || echo x > b", "a function that is removed"),
    ({"f": "exit\n"},                                    "(. ./f; echo x > never); echo x > a", "exit in a subshell"),
    ({"f": "shift\n"},                                   "set -- a b; . ./f; echo x > $1",     "shift"),
    ({"f": "put() { cd src; }\nput\n"},                  "f() { . ./f; }; f; echo x > a",      "inside a function"),
)
# fmt: on


DOUBTFUL = ("a trap at the end", "arguments that the file sets", "a temporary assignment")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    home = tmp_path_factory.mktemp("sourced")
    return load(home, {"HOME": str(home)})


@pytest.mark.threat("T169")
@pytest.mark.parametrize(("files", "script", "why"), CREATED, ids=[row[-1] for row in CREATED])
def test_bash_creates_no_file_that_was_not_judged(
    files: Mapping[str, str], script: str, why: str, tmp_path: Path, settings: Settings
) -> None:
    folder, home = tmp_path.resolve() / "work", tmp_path.resolve() / "home"
    for each in (folder / ".git", folder / "src", home):
        each.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
    facts = gather(str(folder), environment, settings.profile)
    assessment = classify(RunScript(script, facts.workspace), facts, settings.rules, settings.profile)
    before = {path for path in folder.rglob("*") if path.is_file()}
    subprocess.run(["bash", "-c", script], cwd=folder, env=environment, capture_output=True, timeout=60, check=False)
    created = {str(path) for path in folder.rglob("*") if path.is_file()} - {str(path) for path in before}
    writes = {effect.target for effect in assessment.effects if effect.kind is EffectKind.WRITES}
    assert created
    uncertain = any(reason.uncertain for reason in assessment.reasons)
    assert created <= writes or uncertain, (created, writes)
    assert (created <= writes) is (why not in DOUBTFUL), "the other rows are judged with certainty"
