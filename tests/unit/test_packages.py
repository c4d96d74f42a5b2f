"""Tests of package managers in real folders: files of the project decide whether a list command only lists."""

from pathlib import Path

import pytest

from policy.classify import classify
from policy.model.action import RunScript
from policy.model.tier import Tier
from policy.toml.profile import parse_profile
from runner.facts.gather import gather
from tests.support.places import ROOT
from tests.support.rule_examples import BOOK

PROFILE = parse_profile((ROOT / "profiles" / "default.toml").read_text(), "profiles/default.toml")

# fmt: off
ROWS = [
    # files of the project, command, tier, why
    ("",                             "yarn --version",                    Tier.READ,    "its own"),
    (".yarnrc.yml",                  "yarn --version",                    Tier.EXECUTE, "may name another yarn"),
    (".yarnrc",                      "yarn -v",                           Tier.EXECUTE, "so did the older one"),
    (".yarnrc.yml sub/a",            "cd sub && yarn --version",          Tier.EXECUTE, "looked for in every folder above"),
    ("",                             "pnpm list --depth=0",               Tier.READ,    "only reads"),
    (".pnpmfile.cjs",                "pnpm list",                         Tier.EXECUTE, "loaded by every command"),
    ("pnpm-workspace.yaml",          "pnpm ls",                           Tier.EXECUTE, "may name such a file"),
    (".npmrc",                       "pnpm ls",                           Tier.EXECUTE, "so may this"),
    (".npmrc package.json",          "npm ls --all",                      Tier.READ,    "npm lists without scripts"),
    ("",                             "cargo tree --offline",              Tier.READ,    "asks the compiler of the system"),
    ("rust-toolchain.toml",          "cargo tree --offline",              Tier.EXECUTE, "a toolchain may be a folder"),
    ("rust-toolchain",               "cargo --version",                   Tier.EXECUTE, "even to say its version"),
    (".cargo/config.toml",           "cargo metadata --offline",          Tier.EXECUTE, "may name another compiler"),
    ("",                             "poetry show --tree",                Tier.READ,    "reads the lock"),
    (".venv/bin/python",             "poetry show --tree",                Tier.EXECUTE, "asks the project's own Python"),
    (".poetry/plugins/x",            "poetry --version",                  Tier.EXECUTE, "plug-ins of the project"),
    ("",                             "uv pip list",                       Tier.READ,    "reads what is installed"),
    ("pyproject.toml",               "uv pip list",                       Tier.EXECUTE, "may name another Python"),
    (".python-version",              "uv pip tree",                       Tier.EXECUTE, "so may this"),
    ("pyproject.toml",               "uv --version",                      Tier.READ,    "before any of that"),
    ("",                             "composer show",                     Tier.READ,    "nothing to load"),
    ("composer.json",                "composer show",                     Tier.EXECUTE, "plug-ins"),
    ("",                             "conan --version",                   Tier.READ,    "its own"),
    (".conanrc",                     "conan --version",                   Tier.EXECUTE, "may name a folder whose commands it loads first"),
    ("rebar.config.script",          "rebar3 --version",                  Tier.EXECUTE, "evaluated before anything else"),
    ("",                             "npx eslint .",                      Tier.NETWORK, "fetched first"),
    ("node_modules/.bin/eslint",     "npx eslint .",                      Tier.EXECUTE, "already there"),
    ("node_modules/.bin/eslint",     "npx -p other eslint .",             Tier.NETWORK, "of another package"),
    ("node_modules/.bin/eslint",     "npx eslint@9 .",                    Tier.NETWORK, "another version"),
    ("a.py src/b.py",                "python3 -m pip list",               Tier.READ,    "no module of that name"),
    ("pip.py",                       "python3 -m pip list",               Tier.EXECUTE, "stands in for pip"),
    ("pip/__main__.py",              "python3 -m pip list",               Tier.EXECUTE, "a folder of that name"),
    ("json.py",                      "python3 -m pip list",               Tier.EXECUTE, "pip loads it"),
    ("logging.cpython-311-x.so",     "python3 -m pip list",               Tier.EXECUTE, "a module in machine code"),
    ("_manylinux.py",                "python3 -m pip show x",             Tier.EXECUTE, "pip looks whether it is there"),
    ("json.txt json.py.bak",         "python3 -m pip list",               Tier.READ,    "no modules"),
    ("json.py",                      "python3 -I -m pip list",            Tier.READ,    "isolated"),
    ("json.py",                      "python3 -P -m pip list",            Tier.READ,    "without the current folder"),
    ("json.py",                      "python3 -E -m pip list",            Tier.EXECUTE, "which keeps the current folder"),
    ("json.py src/x",                "cd src && python3 -m pip freeze",   Tier.READ,    "another folder"),
    ("json.py",                      "cd src; python3 -m pip freeze",     Tier.EXECUTE, "if `cd` fails it is this one"),
    ("",                             "python3 -m pip install x",          Tier.NETWORK, "what it is"),
    ("",                             "python3 -m pip list --log x",       Tier.EXECUTE, "what pip says of it"),
    ("",                             "python3 -m pip -m pip list",        Tier.UNKNOWN, "no flag of pip"),
    ("",                             "python3 -m json.tool a.json",       Tier.READ,    "a module that only reads"),
    ("json.py",                      "python3 -m json.tool a.json",       Tier.EXECUTE, "stands in for it"),
    ("argparse/x.py",                "python3 -m json.tool a.json",       Tier.EXECUTE, "stands in for what it loads"),
    ("json.py",                      "cat a | python3 -I -m json.tool",   Tier.READ,    "isolated"),
    ("",                             "python3 -m json.tool a.json b",     Tier.WRITE,   "the second file is written"),
    ("",                             "python3 -m zipfile -l a.zip",       Tier.EXECUTE, "another module"),
]
# fmt: on


@pytest.mark.parametrize(("files", "script", "tier", "why"), ROWS, ids=[f"{row[1]} [{row[0]}]" for row in ROWS])
def test_what_the_project_brings_decides(tmp_path: Path, files: str, script: str, tier: Tier, why: str) -> None:
    project, home = tmp_path.resolve() / "project", tmp_path.resolve() / "home"
    home.mkdir()
    project.mkdir()
    for name in files.split():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    facts = gather(str(project), {"HOME": str(home), "PATH": "/usr/bin:/bin"}, PROFILE)
    assessment = classify(RunScript(script, str(project)), facts, BOOK, PROFILE)
    assert assessment.tiers[0] is tier, (why, assessment.reasons)
