"""Tests of options of the shell that change later commands."""

import pytest

from policy.model.tier import Tier
from tests.support.classified import judge

W, E, U = Tier.WRITE, Tier.EXECUTE, Tier.UNKNOWN
# fmt: off
OPTIONS = [
    ("set -Eeuo pipefail; ls",                         Tier.READ, "stricter"),
    ("set +m; set -b; ls",                             Tier.READ, "messages about jobs"),
    ("set -a; X=1; ls",                                E,         "every variable is exported"),
    ("set -a; set +a; X=1; ls",                        Tier.READ, "not any more"),
    ("set -o allexport; X=1; ls",                      E,         "by its name"),
    ("set -ea; f() { ls; }; bash -c f",                U,         "hostile: functions are exported, too"),
    ("set +B; ls {a,b}",                               U,         "hostile: braces mean something else"),
    ("alias ll='ls -l'; ls",                           Tier.READ, "bash uses no alias in a script"),
    ("alias ls='rm -rf src'\nls",                      Tier.READ, "on later lines neither"),
    ("unalias -a; ls",                                 Tier.READ, "nor one less"),
    ("sh -c 'al\"\"ias ls=\"rm -rf src\"\nls'",        U,         "hostile: dash does"),
    ("bash --posix -c 'a\\lias ls=\"rm -rf src\"\nls'", U,        "hostile: so does bash in this mode"),
    ("shopt -s expand_aliases; alias ls=x\nls",        U,         "hostile: and with this option"),
    ("shopt -s nocasematch; [[ A == a ]] && ls",       Tier.READ, "all branches are judged"),
    ("shopt -s extglob; ls",                           U,         "changes how later lines are read"),
    ("shopt -q extglob; shopt -u dotglob lastpipe; shopt -p nocaseglob; ls", Tier.READ, "off as before"),
    ("shopt -u dotglob -s extglob; ls",                U,         "hostile: the last flag counts"),
    ("shopt -s dotglob; cat *",                        U,         "hostile: a pattern matches hidden files"),
    ("shopt -s lastpipe; ls",                          U,         "the last command of a pipe is part of the shell"),
    ("y=-s; shopt $y extglob; ls",                     U,         "hostile: the flag is in a variable"),
    ("bash -lc 'ls'",                                  Tier.READ, "the start-up files of the system"),
    ("zsh -lc 'cat a.txt'",                            Tier.READ, "likewise"),
    ("bash -lc 'touch x'",                             W,         "the script counts"),
]
# fmt: on


@pytest.mark.threat("T02")
@pytest.mark.parametrize(("script", "tier", "why"), OPTIONS, ids=[ascii(row[0]) for row in OPTIONS])
def test_an_option_of_the_shell_is_followed_or_a_question(script: str, tier: Tier, why: str) -> None:
    found = judge(script)
    assert found.tiers[0] is tier, (why, [reason.text for reason in found.reasons])
