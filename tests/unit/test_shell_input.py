"""Tests of literal scripts on the standard input of a shell: they are judged like the same text in `bash -c`."""

import pytest

from policy.model.tier import Mode, Ruling, Tier
from tests.support.permission_machine import assess, judge, ruling
from tests.support.shell_input_forms import FORMS

# fmt: off
SHARED = [  # another command could have read a part of it
    ("{ bash; } <<< '@'",                             "a group"),
    ("echo '@' | (bash)",                             "a subshell"),
    ("bash -c bash <<< '@'",                          "a script that starts a shell"),
    ("f() { bash; }; f <<< '@'",                      "a function"),
    ("eval bash <<< '@'",                             "eval"),
    ("if true; then bash; fi <<< '@'",                "a condition"),
    ("bash <<'END'\ncat\n@\nEND",                     "a command in the script that reads it"),
    ("bash <<'END'\nread x\n@\nEND",                  "one that takes a line away"),
    ("echo '@' | bash -s $(read x)",                  "a substitution among the words"),
    ("find . -maxdepth 0 -exec bash \\; <<< '@'",     "a program that may run several commands"),
]
UNCERTAIN = [
    ('bash <<< "$x"',                                 "unknown text"),
    ("bash <<< ls < evil.sh",                         "the last redirection counts"),
    ("bash <<< ls 0<> evil.sh",                       "likewise"),
    ("bash <(cat evil.sh) <<< ls",                    "the script is in the pipe"),
    ("bash - evil.sh <<< ls",                         "the script is in the file"),
    ("echo ls | sed s/ls/rm/ | bash",                 "a program that changes the text"),
    ("echo -e 'l\\x73' | bash",                       "an escape"),
    ("sh -c \"echo 'ls\\nx' | sh\"",                  "an escape in another shell"),
    ("printf '%q' ls | bash",                         "a format that quotes"),
    ("echo() { command echo x; }; echo ls | bash",    "a function"),
    ("trap 'echo x' DEBUG; echo ls | bash",           "a trap may print, too"),
    ("echo ls |& bash",                               "error messages are in the text"),
    ("echo ls > f | bash",                            "the output goes elsewhere"),
    ("echo ls | xargs bash",                          "xargs makes words of its input"),
    ("bash <<'END'\nexec < evil.sh\nls\nEND",         "the rest comes from a file"),
    ("bash <<'END'\nread x\ncat <<'E'\nls\nE\nEND",   "without its first line the text means something else"),
    ("BASH_ENV=./x bash <<< ls",                      "a file that runs before it"),
]
# fmt: on


@pytest.mark.threat("T171")
@pytest.mark.parametrize(("form", "why"), FORMS, ids=[row[1] + "-" + row[0][:12] for row in FORMS])
def test_a_known_script_on_the_input_is_judged_like_the_plain_text(form: str, why: str) -> None:
    assert assess(form.replace("@", "ls src"), "").tiers[0] is Tier.READ, why
    assert ruling(judge(form.replace("@", "ls src"), "", Mode.DEFAULT)) is Ruling.ALLOW, why
    assert assess(form.replace("@", "git reset --hard"), "").tiers[0] is Tier.DANGEROUS, why


@pytest.mark.threat("T171")
@pytest.mark.parametrize(("form", "why"), SHARED, ids=[row[1] for row in SHARED])
def test_an_input_that_others_may_read_is_also_code_that_nobody_read(form: str, why: str) -> None:
    assert Tier.EXECUTE in assess(form.replace("@", "ls src"), "").tiers, why
    assert assess(form.replace("@", "git reset --hard"), "").tiers[0] is Tier.DANGEROUS, why


@pytest.mark.threat("T171")
@pytest.mark.parametrize(("script", "why"), UNCERTAIN, ids=[row[1] + "-" + row[0][:12] for row in UNCERTAIN])
def test_a_text_that_is_not_certain_is_code_that_nobody_read(script: str, why: str) -> None:
    assert assess(script, "").tiers[0] >= Tier.EXECUTE, why
    assert ruling(judge(script, "", Mode.DEFAULT)) is Ruling.ASK, why


@pytest.mark.threat("T171")
def test_a_sourced_text_changes_the_shell_and_gets_its_arguments() -> None:
    assert assess(". /dev/stdin <<< 'cd /'; cat etc/shadow", "").tiers[0] is Tier.SECRET
    assert assess("bash -s /etc/shadow <<< 'cat $1'", "").tiers[0] is Tier.SECRET
    assert assess(". /dev/stdin /etc/shadow <<< 'cat $1'", "").tiers[0] is Tier.SECRET
