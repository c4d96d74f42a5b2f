"""Real bash as the judge of the table of scripts on the standard input: it runs each of them as the table says."""

import subprocess

import pytest

from tests.support.shell_input_forms import FORMS


@pytest.mark.parametrize(("form", "why"), FORMS, ids=[row[1] + "-" + row[0][:12] for row in FORMS])
def test_bash_runs_the_script_of_each_form(form: str, why: str) -> None:
    ran = subprocess.run(
        ["bash", "--norc", "--noprofile", "-c", form.replace("@", "echo ran")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.stdout == "ran\n", (why, ran.stderr)
