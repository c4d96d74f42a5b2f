"""Tests of the folder after `source FILE`, which is certain only if nothing in the file, as it is now, changes it."""

import os
from pathlib import Path

import pytest

from policy.classify import classify
from policy.model.action import RunScript
from policy.model.facts import Facts
from policy.model.tier import Tier
from runner.config import Settings, load
from runner.facts.gather import gather

# The text that Python's `venv` writes, without its comments.
ACTIVATE = """
deactivate () {
    if [ -n "${_OLD_VIRTUAL_PATH:-}" ] ; then
        PATH="${_OLD_VIRTUAL_PATH:-}"
        export PATH
        unset _OLD_VIRTUAL_PATH
    fi
    hash -r 2> /dev/null
    unset VIRTUAL_ENV
    if [ ! "${1:-}" = "nondestructive" ] ; then
        unset -f deactivate
    fi
}
deactivate nondestructive
case "$(uname)" in
    CYGWIN*|MSYS*|MINGW*)
        VIRTUAL_ENV=$(cygpath "/w/.venv")
        export VIRTUAL_ENV
        ;;
    *)
        export VIRTUAL_ENV=/w/.venv
        ;;
esac
_OLD_VIRTUAL_PATH="$PATH"
PATH="$VIRTUAL_ENV/bin:$PATH"
export PATH
hash -r 2> /dev/null
"""

# fmt: off
ROWS: tuple[tuple[str, str, bool, str], ...] = (
    (ACTIVATE,                                "source ./f && echo x > out.txt",                True,  "an environment of Python"),
    (ACTIVATE,                                ". ./f; cd src; echo x > out.txt",               True,  "a known folder below it"),
    (ACTIVATE,                                "cd src && . ../f && echo x > out.txt",          True,  "from another folder"),
    ("root=$(cd /etc && pwd)\nf() { ls; }\n", "source ./f; echo x > out.txt",                  True,  "the folder of a subshell"),
    ("cd /etc\n",                             "source ./f; echo x > out.txt",                  False, "hostile: another folder"),
    ("ls() { pushd /etc; }\n",                "source ./f; ls; echo x > out.txt",              False, "hostile: a function shadows a command"),
    ("c=cd; $c /etc\n",                       "source ./f; echo x > out.txt",                  False, "hostile: a computed name"),
    ("\\cd /etc\n",                           "source ./f; echo x > out.txt",                  False, "hostile: a quoted name"),
    ("builtin cd /etc\n",                     "source ./f; echo x > out.txt",                  False, "hostile: by another builtin"),
    ("trap 'cd /etc' DEBUG\n",                "source ./f; echo x > out.txt",                  False, "hostile: a trap"),
    ("eval 'c''d /etc'\n",                    "source ./f; echo x > out.txt",                  False, "hostile: text that is run"),
    (". ./f\n",                               "source ./f; echo x > out.txt",                  False, "a file that reads itself"),
    ("export CDPATH=/etc\n",                  "source ./f; cd src; echo x > out.txt",          False, "hostile: where `cd` searches"),
    ("HOME=/etc\n",                           "source ./f; cd; echo x > out.txt",              False, "hostile: another home"),
    ("x=1\r\n",                               "source ./f; echo x > out.txt",                  False, "carriage returns"),
    ("x=1\0\n",                               "source ./f; echo x > out.txt",                  False, "NUL"),
    ("x='" + "y" * 70_000 + "'\n",            "source ./f; echo x > out.txt",                  False, "too long"),
    ("x=1\n",                                 "echo cd /etc > f; source ./f; echo x > out.txt", False, "hostile: written before"),
    ("x=1\n",                                 "python3 make.py; source ./f; echo x > out.txt", False, "hostile: a program may have written it"),
    ("x=1\n",                                 "for i in a b; do source ./f; echo cd src > f; done; echo x > out.txt", False, "hostile: written before the next round"),
    ("x=1\n",                                 "(echo cd src > f) & source ./f; echo x > out.txt", False, "hostile: written in the background"),
    ("x=1\n",                                 "source f; echo x > out.txt",                    False, "hostile: found on PATH"),
    ("x=1\n",                                 'source "$x/f"; echo x > out.txt',               False, "another file"),
    ("ls\n",                                  "ls() { cd /etc; }; source ./f; echo x > out.txt", False, "hostile: a function of the script"),
    ("x=1\n",                                 "trap 'cd /etc' DEBUG; source ./f; echo x > out.txt", False, "hostile: a trap of the script"),
    ("x=1\n",                                 "source ./link; echo x > out.txt",               False, "hostile: a link out of the workspace"),
    ("x=1\n",                                 "source ./pipe; echo x > out.txt",               False, "a pipe"),
)
# fmt: on


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    home = tmp_path_factory.mktemp("sourced")
    return load(home, {"HOME": str(home)})


def place(tmp_path: Path, content: str, settings: Settings) -> Facts:
    top = tmp_path.resolve()
    for folder in ("work/.git", "work/src", "home"):
        (top / folder).mkdir(parents=True)
    (top / "work/f").write_bytes(content.encode())
    (top / "outside").write_text("x=1\n")
    (top / "work/link").symlink_to(top / "outside")
    os.mkfifo(top / "work/pipe")
    return gather(str(top / "work"), {"HOME": str(top / "home"), "PATH": "/usr/bin:/bin"}, settings.profile)


@pytest.mark.threat("T169")
@pytest.mark.parametrize(("content", "script", "certain", "why"), ROWS, ids=[row[-1] for row in ROWS])
def test_the_folder_is_certain_only_if_the_file_keeps_it(
    content: str, script: str, certain: bool, why: str, tmp_path: Path, settings: Settings
) -> None:
    facts = place(tmp_path, content, settings)
    assessment = classify(RunScript(script, facts.workspace), facts, settings.rules, settings.profile)
    assert Tier.EXECUTE in assessment.tiers, why
    doubtful = {Tier.UNKNOWN, Tier.WRITE_OUTSIDE} & {*assessment.tiers}
    assert (not doubtful) is certain, [reason.text for reason in assessment.reasons]


@pytest.mark.threat("T169")
def test_a_secret_file_is_not_read(tmp_path: Path, settings: Settings) -> None:
    facts = place(tmp_path, "x=1\n", settings)
    (Path(facts.workspace) / ".env").write_text("TOKEN=abc\n")
    action = RunScript("source ./.env; echo x > out.txt", facts.workspace)
    assessment = classify(action, facts, settings.rules, settings.profile)
    assert Tier.SECRET in assessment.tiers
    assert Tier.UNKNOWN in assessment.tiers
    assert "abc" not in repr(assessment)
