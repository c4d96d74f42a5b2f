"""Tests of the environment of the suite: no variable or file of the caller reaches a test."""

import os
import shutil

import pytest

from tests.support import own_environment

# fmt: off
VARIABLES = [
    ("XDG_CONFIG_HOME",             False, "a folder of configuration files"),
    ("RINGFENCE_MODE",              False, "a setting of the product"),
    ("GIT_DIR",                     False, "what Git sets for a hook that runs the tests"),
    ("ANTHROPIC_API_KEY",           False, "a key"),
    ("http_proxy",                  False, "a proxy"),
    ("GITHUB_ACTIONS",              False, "a pipeline"),
    ("LC_ALL",                      False, "another language of messages"),
    ("PATH",                        True,  "programs"),
    ("PYTHONPYCACHEPREFIX",         True,  "an option of the interpreter"),
    ("LAW_EXAMPLES",                True,  "an option of this suite"),
]
# fmt: on


@pytest.mark.parametrize(("name", "kept", "why"), VARIABLES, ids=[row[2] for row in VARIABLES])
def test_a_variable_of_the_caller(name: str, kept: bool, why: str) -> None:
    before = dict(os.environ)
    os.environ[name] = "/hostile"
    try:
        home = own_environment.isolate()
        assert (name in os.environ) is kept
        assert (os.environ["HOME"], list(home.iterdir())) == (str(home), [])
        shutil.rmtree(home)
    finally:
        os.environ.clear()
        os.environ.update(before)
