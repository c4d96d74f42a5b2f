"""Tests of toolchains below the home: found, readable and working, while the rest of the home stays closed."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from policy.toml.profile import parse_profile
from runner.facts.environment import child_environment
from runner.facts.gather import gather
from tests.support.compat_projects import pyenv
from tests.support.compat_rows import rights
from tests.support.places import ROOT
from tests.support.sandbox_bench import SECRET, USERS, Bench, make

PROFILE_FILE = ROOT / "profiles" / "default.toml"
PROFILE = parse_profile(PROFILE_FILE.read_text("utf-8"), "profiles/default.toml")
Build = Callable[[Path, Path], dict[str, str]]  # the home, a whole Python tree -> variables; PATH is below the home


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def tree(python: Path, place: Path) -> Path:
    """A copy of the Python tree that takes no room."""
    shutil.copytree(python, place, copy_function=os.link, symlinks=True)
    return place / "bin" / "python3"


def conda(home: Path, python: Path) -> dict[str, str]:
    tree(python, home / "miniconda3")
    (home / "miniconda3/conda-meta").mkdir()
    tree(python, home / "miniconda3/envs/data")
    return {"PATH": "miniconda3/envs/data/bin:miniconda3/condabin", "CONDA_PREFIX": f"{home}/miniconda3/envs/data"}


def uv_tool(home: Path, python: Path) -> dict[str, str]:
    base = tree(python, home / ".local/share/uv/python/cpython-3")
    venv = home / ".local/share/uv/tools/hello"
    subprocess.run([base, "-m", "venv", "--without-pip", venv], check=True)
    program(venv / "bin/hello", f"#!{venv}/bin/python\nimport sys\nprint('hello', sys.prefix == '{venv}')\n")
    (home / ".local/bin").mkdir(parents=True)
    (home / ".local/bin/hello").symlink_to(venv / "bin/hello")
    return {"PATH": ".local/bin"}


def pip_user(home: Path, python: Path) -> dict[str, str]:
    base = tree(python, home / ".pyenv/versions/3.9.9")
    version = subprocess.run(
        [base, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, check=True
    ).stdout.strip()
    program(home / f".local/lib/python{version}/site-packages/hello.py", "print('hello', True)\n")
    program(home / ".local/bin/hello", f"#!{base}\nimport hello\n")
    return {"PATH": ".local/bin"}


def virtualenv(home: Path, python: Path) -> dict[str, str]:
    base = tree(python, home / "python/current")
    subprocess.run([base, "-m", "venv", "--without-pip", home / ".virtualenvs/work"], check=True)
    return {"PATH": ".virtualenvs/work/bin", "VIRTUAL_ENV": f"{home}/.virtualenvs/work"}


def nvm(home: Path, _: Path) -> dict[str, str]:
    place = home / ".nvm/versions/node/v20.0.0"
    (place / "bin").mkdir(parents=True)
    shutil.copy(os.path.realpath(str(shutil.which("node"))), place / "bin/node")
    program(
        place / "lib/node_modules/pad/cli.js",
        "#!/usr/bin/env node\nconsole.log('hello', process.execPath.includes('.nvm'))\n",
    )
    (place / "bin/hello").symlink_to("../lib/node_modules/pad/cli.js")
    program(home / ".nvm/nvm.sh", "nvm() { :; }\n")
    return {"PATH": ".nvm/versions/node/v20.0.0/bin", "NVM_DIR": f"{home}/.nvm"}


def sdkman(home: Path, _: Path) -> dict[str, str]:
    program(
        home / ".sdkman/candidates/gradle/8.0/bin/hello",
        '#!/bin/sh\nhere=$(dirname "$(readlink -f "$0")")\n. "$here/../lib/say"\n',
    )
    program(home / ".sdkman/candidates/gradle/8.0/lib/say", "echo hello True\n")
    (home / ".sdkman/candidates/gradle/current").symlink_to("8.0")
    return {"PATH": ".sdkman/candidates/gradle/current/bin", "GRADLE_HOME": f"{home}/.sdkman/candidates/gradle/current"}


def homebrew(home: Path, python: Path) -> dict[str, str]:
    tree(python, home / ".linuxbrew/Cellar/python@3/3.0.0")
    (home / ".linuxbrew/opt").mkdir()
    (home / ".linuxbrew/opt/python@3").symlink_to("../Cellar/python@3/3.0.0")
    (home / ".linuxbrew/bin").mkdir()
    (home / ".linuxbrew/bin/python3").symlink_to("../opt/python@3/bin/python3")
    return {"PATH": ".linuxbrew/bin", "HOMEBREW_PREFIX": f"{home}/.linuxbrew"}


def asdf(home: Path, python: Path) -> dict[str, str]:
    tree(python, home / ".asdf/installs/python/3.0.0")
    (home / ".tool-versions").write_text("python 3.0.0\n")
    program(
        home / ".asdf/bin/asdf",
        '#!/usr/bin/env bash\nread -r _ version < "$HOME/.tool-versions"\nexec "$HOME/.asdf/installs/python/$version/bin/$2" "${@:3}"\n',
    )
    program(home / ".asdf/shims/python3", f'#!/usr/bin/env bash\nexec {home}/.asdf/bin/asdf exec "python3" "$@"\n')
    return {"PATH": ".asdf/shims"}


def mise(home: Path, python: Path) -> dict[str, str]:
    tree(python, home / ".local/share/mise/installs/python/3.0.0")
    (home / ".local/share/mise/installs/python/3").symlink_to("3.0.0")
    program(home / ".local/bin/mise", '#!/bin/sh\nexec "$HOME/.local/share/mise/installs/python/3/bin/${0##*/}" "$@"\n')
    (home / ".local/share/mise/shims").mkdir()
    (home / ".local/share/mise/shims/python3").symlink_to(home / ".local/bin/mise")
    return {"PATH": ".local/share/mise/shims"}


def fnm(home: Path, python: Path) -> dict[str, str]:
    """A folder of links that one shell has, in a place that is gone with the session."""
    tree(python, home / ".local/share/fnm/node-versions/v20/installation")
    (home / ".local/state/fnm_multishells").mkdir(parents=True)
    (home / ".local/state/fnm_multishells/1_2").symlink_to(home / ".local/share/fnm/node-versions/v20/installation")
    return {"PATH": ".local/state/fnm_multishells/1_2/bin"}


def rbenv(home: Path, python: Path) -> dict[str, str]:
    tree(python, home / ".rbenv/versions/3.0.0")
    program(home / ".rbenv/libexec/rbenv", '#!/usr/bin/env bash\nexec "$RBENV_ROOT/versions/3.0.0/bin/$2" "${@:3}"\n')
    program(
        home / ".rbenv/shims/python3",
        f'#!/usr/bin/env bash\nexport RBENV_ROOT="{home}/.rbenv"\nexec "{home}/.rbenv/libexec/rbenv" exec python3 "$@"\n',
    )
    return {"PATH": ".rbenv/shims"}


def volta(home: Path, _: Path) -> dict[str, str]:
    program(home / ".volta/tools/image/node/20.0.0/bin/hello", "#!/bin/sh\necho hello True\n")
    program(home / ".volta/bin/volta-shim", '#!/bin/sh\nexec "$VOLTA_HOME/tools/image/node/20.0.0/bin/${0##*/}" "$@"\n')
    (home / ".volta/bin/hello").symlink_to("volta-shim")
    return {"PATH": ".volta/bin", "VOLTA_HOME": f"{home}/.volta"}


def go(home: Path, _: Path) -> dict[str, str]:
    program(home / "sdk/go1.22/bin/go", '#!/bin/sh\n. "$(dirname "$0")/../lib/time/say"\n')
    program(home / "sdk/go1.22/lib/time/say", "exec hello\n")
    program(home / "go/bin/hello", "#!/bin/sh\necho hello True\n")
    return {"PATH": "go/bin:sdk/go1.22/bin", "GOROOT": f"{home}/sdk/go1.22", "GOPATH": f"{home}/go"}


def single(home: Path, _: Path) -> dict[str, str]:
    program(home / ".deno/bin/hello", "#!/bin/sh\necho hello True\n")
    return {"PATH": ".deno/bin:.bun/bin", "DENO_INSTALL": f"{home}/.deno"}


PYTHON = 'python3 -c \'import json, sys; print("hello", sys.executable.startswith("{home}/"))\''

LAYOUTS: list[tuple[Build, str]] = [
    (conda, PYTHON),
    (uv_tool, "hello"),
    (pip_user, "hello"),
    (virtualenv, 'python -c \'import sys; print("hello", sys.prefix == "{home}/.virtualenvs/work")\''),
    (nvm, "hello | sed s/true/True/"),
    (sdkman, "hello"),
    (homebrew, PYTHON),
    (asdf, PYTHON),
    (mise, PYTHON),
    (fnm, PYTHON),
    (rbenv, PYTHON),
    (volta, "hello"),
    (go, "go"),
    (single, "hello"),
]


@pytest.fixture(scope="module", params=USERS)
def homes(request: pytest.FixtureRequest) -> Iterator[tuple[Bench, Path]]:
    for bench in make(request.param):
        pyenv(bench.base / "python")
        python = next((bench.base / "python" / ".pyenv" / "versions").iterdir())
        yield bench, python


@pytest.mark.threat("T03")
@pytest.mark.parametrize(("build", "script"), LAYOUTS, ids=[build.__name__ for build, _ in LAYOUTS])
def test_a_toolchain_below_the_home_works_and_opens_nothing_else(
    homes: tuple[Bench, Path], build: Build, script: str
) -> None:
    bench, python = homes
    home = bench.base / "homes" / build.__name__
    for name in (".ssh/id_rsa", "private/notes.txt", ".config/app/token", ".bash_history"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(SECRET)
    told = build(home, python)
    bench.own(home)
    path = ":".join(f"{home}/{each}" for each in told.pop("PATH").split(":"))
    environ = {"HOME": str(home), "PATH": f"{path}:/usr/bin:/bin", "LANG": "C.UTF-8", **told}
    facts = gather(str(bench.workspace), environ, PROFILE)
    environment = dict(child_environment(facts, environ, PROFILE))
    for want in ("read-only", "workspace-write"):
        answer = bench.run(script.replace("{home}", str(home)), rights=want, **rights(facts, environment, cache=""))
        assert (answer["out"], answer["status"]) == ("hello True\n", 0), (want, answer)
    found = bench.run(f"grep -rlsF {SECRET} {home}; ls -A ~/private ~/.ssh", **rights(facts, environment, cache=""))
    assert found["out"] == "", found
    shown = {name: environment[name] for name in told if name in environment}  # the others name more than is readable
    assert shown == {name: os.path.realpath(told[name]) for name in shown}
