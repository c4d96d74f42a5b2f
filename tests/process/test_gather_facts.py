"""Tests of facts from the real disk: paths, programs, toolchains, and the environment of a command."""

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from policy.model.facts import Facts, Kind
from policy.model.profile import Profile
from policy.model.secret_paths import Secrets, inside
from policy.toml.profile import parse_profile
from runner.facts.environment import child_environment
from runner.facts.gather import gather
from runner.facts.toolchains import outermost, roots
from runner.state.workspace import workspace_of
from tests.support.law import examples
from tests.support.places import ROOT

PROFILE = parse_profile((ROOT / "profiles" / "default.toml").read_text(), "profiles/default.toml")


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A real folder with a home and a project in it, away from every other setting of this machine."""
    real = tmp_path.resolve()
    (real / "home").mkdir()
    (real / "project").mkdir()
    return real


def environ(top: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(top / "home"), "PATH": "/usr/local/bin:/usr/bin:/bin"} | more


def look_around(top: Path, **more: str) -> Facts:
    return gather(str(top / "project"), environ(top, **more), PROFILE)


def put(path: Path, text: str = "", mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def link(path: Path, target: Path | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


# --- look and which ---------------------------------------------------------------------------------------------------


@pytest.mark.threat("T18")
def test_look_resolves_as_the_kernel_does(top: Path) -> None:
    put(top / "project/a/file")
    link(top / "project/to-file", "a/file")
    link(top / "project/to-folder", top / "project/a")
    link(top / "project/dangling", "nowhere/x")
    link(top / "project/loop", "loop")
    link(top / "project/ping", "pong")
    link(top / "project/pong", "ping")
    link(top / "project/root", "/")
    os.mkfifo(top / "project/fifo")
    look = look_around(top).look
    base = f"{top}/project"
    rows = [
        # path, real (None: whatever), kind, why
        (f"{base}/a/file", f"{base}/a/file", Kind.FILE, "a file"),
        (f"{base}/a", f"{base}/a", Kind.FOLDER, "a folder"),
        (f"{base}/to-file", f"{base}/a/file", Kind.FILE, "a link"),
        (f"{base}/to-folder/file", f"{base}/a/file", Kind.FILE, "through a link"),
        (f"{base}/to-folder/../x", f"{base}/x", Kind.MISSING, "`..` after a link leads to the parent of its target"),
        (f"{base}/a/../a/./file/", f"{base}/a/file", Kind.FILE, "dots and a last slash"),
        (f"{base}/a/b/c/d", f"{base}/a/b/c/d", Kind.MISSING, "a missing tail stays as it stands"),
        (f"{base}/a/file/x", f"{base}/a/file/x", Kind.MISSING, "below a file nothing is"),
        (f"{base}/dangling", f"{base}/nowhere/x", Kind.MISSING, "a link to nothing: a write would make the target"),
        (f"{base}/root/etc/passwd", "/etc/passwd", Kind.FILE, "a link out of the project"),
        (f"{base}/fifo", f"{base}/fifo", Kind.OTHER, "a pipe"),
        ("/dev/null", "/dev/null", Kind.OTHER, "a device"),
        (f"{base}/loop", None, Kind.OTHER, "a link to itself"),
        (f"{base}/ping/x", None, Kind.OTHER, "a circle of links"),
        (f"{base}/a\0b", None, Kind.OTHER, "a NUL"),
        (f"{base}/\ud800", None, Kind.OTHER, "a name that cannot be encoded"),
        (f"{base}/{'x' * 300}", None, Kind.OTHER, "a name too long for the kernel"),
        ("/" + "x/" * 50_000, None, Kind.OTHER, "a path too long for the kernel"),
        ("relative", None, Kind.OTHER, "no absolute path"),
        ("", None, Kind.OTHER, "nothing"),
        ("/", "/", Kind.FOLDER, "everything"),
        (os.fsdecode(f"{base}/\xff".encode("latin-1")), None, Kind.MISSING, "bytes that are no text"),
    ]
    for path, real, kind, why in rows:
        found = look(path)
        assert found.kind is kind, (why, found)
        assert real is None or found.real == real, (why, found)


def test_one_decision_sees_one_state_of_the_disk(top: Path) -> None:
    facts = look_around(top)
    path = str(top / "project/new")
    assert facts.look(path).kind is Kind.MISSING
    assert facts.which("fresh-program") is None
    put(top / "project/new")
    assert facts.look(path).kind is Kind.MISSING, "the same facts, the same answer"
    assert look_around(top).look(path).kind is Kind.FILE, "new facts, a new look"


@pytest.mark.threat("T42")
@example("\0")
@example("\ud800")
@example("x" * 5000)
@given(st.text(max_size=60))
@examples(25, many=240, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_law_no_name_is_too_odd(tmp_path: Path, name: str) -> None:
    facts = gather(str(tmp_path), {"HOME": str(tmp_path)}, PROFILE)
    facts.look(f"{tmp_path}/{name}")
    facts.look(name)
    found = facts.which(name)
    assert found is None or os.access(found, os.X_OK)
    gather(f"/{name}", {"HOME": name, "PATH": name}, PROFILE)


@pytest.mark.threat("T32")
def test_which_finds_programs_and_nothing_else(top: Path) -> None:
    tools = top / "tools"
    put(tools / "mine", "#!/bin/sh\n", 0o755)
    put(tools / "data", "x", 0o644)
    (tools / "folder").mkdir(mode=0o755)
    which = look_around(top, PATH=f"{tools}:/usr/bin").which
    assert which("mine") == f"{tools}/mine"
    assert which("sh") in ("/usr/bin/sh", "/bin/sh")
    for name in ("data", "folder", "no-such-program", "", ".", "..", "../mine", f"{tools}/mine", "a\0b", "\ud800"):
        assert which(name) is None, name


# --- workspace --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cwd", "git", "expected", "why"),
    [
        ("project", [], "project", "no repository"),
        ("project/a/b", ["project/.git"], "project", "the top of the repository"),
        ("project/a/b", ["project/.git", "project/a/.git"], "project/a", "the nearest one"),
        ("home/src/p/x", ["home/src/p/.git"], "home/src/p", "a project in the home"),
        ("home/src/p", ["home/.git"], "home/src/p", "dotfiles under version control do not make the home a project"),
        ("home", ["home/.git"], "home", "unless it is the current folder"),
        ("home/src", [".git"], "home/src", "nor a repository above the home"),
        ("project/a", [".git"], "project/a", "for a folder beside the home the one above both is no project either"),
    ],
)
def test_workspace(top: Path, cwd: str, git: list[str], expected: str, why: str) -> None:
    for folder in git:
        (top / folder).mkdir(parents=True)
    (top / cwd).mkdir(parents=True, exist_ok=True)
    assert workspace_of(str(top / cwd), str(top / "home")) == str(top / expected), why


def test_workspace_is_never_everything() -> None:
    assert workspace_of("/usr", "/home/u") == "/usr"


def test_facts_are_real_paths(top: Path) -> None:
    link(top / "way", top / "project")
    link(top / "hearth", top / "home")
    facts = gather(str(top / "way"), environ(top, HOME=str(top / "hearth")), PROFILE)
    assert (facts.workspace, facts.home) == (str(top / "project"), str(top / "home"))


def test_a_worktree_may_read_the_repository_that_it_belongs_to(top: Path) -> None:
    git(top / "home/main", "init", "-q")
    git(top / "home/main", "commit", "-q", "--allow-empty", "-m", "x")
    (top / "project").rmdir()
    git(top / "home/main", "worktree", "add", "-q", str(top / "project"))
    facts = look_around(top)
    assert facts.workspace == str(top / "project")
    shared = f"{top}/home/main/.git"
    assert shared in facts.system
    assert facts.repository == (shared, f"{shared}/worktrees/project")
    status = subprocess.run(
        ["git", "status"], cwd=top / "project", env=dict(child_environment(facts, environ(top), PROFILE)), check=False
    )
    assert status.returncode == 0


@pytest.mark.threat("T45")
def test_a_forged_worktree_opens_nothing(top: Path) -> None:
    git(top / "home/main", "init", "-q")
    git(top / "home/main", "commit", "-q", "--allow-empty", "-m", "x")
    git(top / "home/main", "worktree", "add", "-q", str(top / "other"))
    real = f"{top}/home/main/.git/worktrees/other"  # a true one, but of another workspace
    assert (top / "other/.git").read_text() == f"gitdir: {real}\n"
    for pointer in (
        real,
        f"{top}/home/main/.git",
        f"{top}/home/.ssh",
        "/",
        f"{top}/home",
        "../home/main/.git",
        "x" * 9000,
    ):
        put(top / "project/.git", f"gitdir: {pointer}\n")
        facts = look_around(top)
        assert not [root for root in (*facts.system, *facts.repository) if inside(root, str(top))], pointer


# What is done to a repository with the worktree `project`, after which its commands may not change it.
FOREIGN = [
    ("mv .git/objects ../o && ln -s ../../o .git/objects", "objects that are elsewhere"),
    ("mv .git/refs ../r && ln -s ../../r .git/refs", "refs that are elsewhere"),
    ("echo /elsewhere/.git > .git/worktrees/project/gitdir", "a worktree that is elsewhere"),
    ("echo .. > .git/worktrees/project/commondir", "another shared folder"),
    ("mkdir .git/worktrees/a && mv .git/worktrees/project .git/worktrees/a && echo ../../.. > .git/worktrees/a/project/commondir"
     " && echo gitdir: $PWD/.git/worktrees/a/project > ../../project/.git", "a folder at another place"),
    *([("chown 65534 .git/worktrees/project", "a folder of another user")] if os.geteuid() == 0 else []),
]  # fmt: skip


@pytest.mark.threat("T138")
@pytest.mark.parametrize(("change", "why"), FOREIGN, ids=[row[1] for row in FOREIGN])
def test_a_repository_of_another_form_is_not_writable(top: Path, change: str, why: str) -> None:
    main = top / "home/main"
    git(main, "init", "-q")
    git(main, "commit", "-q", "--allow-empty", "-m", "x")
    git(main, "worktree", "add", "-q", str(top / "project"))
    assert look_around(top).repository
    subprocess.run(change, shell=True, cwd=main, check=True)
    assert not look_around(top).repository


def test_a_submodule_opened_by_itself_has_its_git_folder(top: Path) -> None:
    for name in ("inner", "outer"):
        git(top / f"home/{name}", "init", "-q")
        git(top / f"home/{name}", "commit", "-q", "--allow-empty", "-m", "x")
    git(top / "home/outer", "-c", "protocol.file.allow=always", "submodule", "-q", "add", f"{top}/home/inner", "sub")
    module = f"{top}/home/outer/.git/modules/sub"
    found = gather(f"{top}/home/outer/sub", environ(top), PROFILE)
    assert found.workspace == f"{top}/home/outer/sub"
    assert [root for root in found.system if inside(root, str(top))] == [module]
    assert found.repository == (module, module)
    # An equal pointer in a folder of another user.
    put(top / "project/.git", f"gitdir: {module}\n")
    assert not [root for root in look_around(top).system if inside(root, str(top))]
    # A pointer that names the folder without being that of a submodule: a forged repository beside a key.
    put(top / "home/.ssh/config", f"[core]\nworktree = {top}/project\n")
    put(top / "project/.git", f"gitdir: {top}/home/.ssh\n")
    assert not [root for root in look_around(top).system if inside(root, str(top))]


# --- system roots and PATH --------------------------------------------------------------------------------------------


def test_system_roots_are_the_profiles_and_exist(top: Path) -> None:
    facts = look_around(top)
    assert "/usr" in facts.system
    assert "/etc/passwd" in facts.system
    assert "/etc" not in facts.system
    for root in facts.system:
        assert os.path.lexists(root), root
        assert not any(inside(root, other) for other in facts.system if other != root), f"{root} is covered twice"


@pytest.mark.threat("T45")
def test_a_system_folder_around_the_home_is_carved(top: Path) -> None:
    for part in ("opt/u/.ssh", "opt/u/src", "opt/tool/bin", "opt/deep/u2", "opt/deep/state/ringfence"):
        (top / part).mkdir(parents=True)
    profile = replace(PROFILE, system=(str(top / "opt"),))
    around = {
        "HOME": str(top / "opt/u"),
        "PATH": "/usr/bin",
        "RINGFENCE_STATE_DIR": str(top / "opt/deep/state/ringfence"),
    }
    facts = gather(str(top / "project"), around, profile)
    assert [root for root in facts.system if inside(root, str(top))] == [f"{top}/opt/deep/u2", f"{top}/opt/tool"]


@pytest.mark.threat("T45")
def test_a_system_folder_that_is_a_link_into_a_secret_place_is_none(top: Path) -> None:
    (top / "home/.ssh").mkdir()
    (top / "fine").mkdir()
    names = ("to-home", "to-key", "to-all", "to-fine")
    for name, target in zip(names, ("home", "home/.ssh", "..", "fine"), strict=True):
        link(top / name, target)
    facts = gather(
        str(top / "project"), environ(top), replace(PROFILE, system=tuple(f"{top}/{name}" for name in names))
    )
    assert [root for root in facts.system if inside(root, str(top))] == [f"{top}/to-fine"], "`..` holds the home too"


@pytest.mark.threat("T32")
def test_path_leaves_out_what_others_could_put_programs_into(top: Path) -> None:
    for folder in ("tools", "open", "project/bin", "project/node_modules/.bin", "home/.ssh"):
        (top / folder).mkdir(parents=True)
    (top / "open").chmod(0o777)
    put(top / "file")
    link(top / "sneaky", top / "project/bin")
    given = [
        "",
        ".",
        "bin",
        "tools",
        f"{top}/project/bin",
        f"{top}/project/node_modules/.bin",
        f"{top}/open",
        f"{top}/file",
    ]
    given += [
        f"{top}/missing",
        f"{top}/sneaky",
        f"{top}/project",
        f"{top}/home",
        f"{top}/home/.ssh",
        f"{top}/tools",
        "/usr/bin",
    ]
    facts = look_around(top, PATH=":".join([*given, f"{top}/tools/", "/usr/bin"]))
    assert facts.path == (f"{top}/tools", os.path.realpath("/usr/bin"))
    assert f"{top}/tools" in facts.system


@pytest.mark.parametrize("given", ["", ":", "relative", "/nonexistent"])
def test_without_a_usable_path_there_is_the_usual_one(top: Path, given: str) -> None:
    facts = look_around(top, PATH=given)
    assert os.path.realpath("/usr/bin") in facts.path
    assert facts.which("ls")


def test_every_folder_on_path_can_be_read(top: Path) -> None:
    facts = look_around(top, PATH=os.environ["PATH"])
    for folder in facts.path:
        assert any(inside(folder, root) for root in facts.system), folder


@pytest.mark.threat("T03")
def test_private_is_ours_and_where_secrets_really_lie(top: Path) -> None:
    (top / "vault/ssh").mkdir(parents=True)
    link(top / "home/.ssh", top / "vault/ssh")
    link(top / "home/.bash_history", "/dev/null")
    link(top / "home/.netrc", top / "home/nowhere")
    link(top / "home/.config/gh", "/usr")
    link(top / "home/.aws", top / "home")
    facts = look_around(top)
    assert facts.private == (
        f"{top}/home/.local/state/ringfence",
        f"{top}/home/.config/ringfence",
        f"{top}/home/.cache/ringfence",
        f"{top}/vault/ssh",
    )


# --- toolchains -------------------------------------------------------------------------------------------------------


def home_of(top: Path) -> Path:
    """A developer's home with most toolchains in it, and secrets between them."""
    home = top / "home"
    for folder in (
        ".ssh", ".aws/cli/bin", ".aws/cli/lib", ".pyenv/shims", ".pyenv/bin", ".pyenv/versions/3.12.1/bin", ".pyenv/versions/3.12.1/lib",
        ".cargo/bin", ".cargo/registry", ".rustup/toolchains", ".nvm/versions/node/v20/bin",
        ".nvm/versions/node/v20/lib", ".local/bin", ".local/lib/python3.12", ".local/share/keyrings",
        ".local/share/uv/tools/ruff/bin", ".local/share/uv/tools/ruff/lib", ".local/share/uv/python/cp312/bin",
        ".local/share/uv/python/cp312/lib", "bin", "go/bin", "go/pkg", "go/src/private", "miniconda3/bin",
        "miniconda3/conda-meta", ".bun/bin", ".sdkman/candidates/java/17/bin", ".sdkman/candidates/java/17/lib",
        ".docker/bin", "projects/bin", "projects/secret", "apps/tool/bin", "apps/tool/lib", "apps/single",
        ".linuxbrew/bin", ".linuxbrew/Cellar", ".asdf/shims", ".asdf/installs", ".local/share/mise/shims",
    ):  # fmt: skip
        (home / folder).mkdir(parents=True)
    put(home / ".ssh/id_rsa", "KEY")
    put(home / ".cargo/credentials.toml", "KEY")
    put(home / ".docker/config.json", "KEY")
    link(home / ".sdkman/candidates/java/current", home / ".sdkman/candidates/java/17")
    put(home / ".local/share/uv/tools/ruff/pyvenv.cfg")
    put(home / ".local/share/uv/tools/ruff/bin/ruff", "", 0o755)
    put(home / ".local/share/uv/python/cp312/bin/python3.12", "", 0o755)
    link(home / ".local/share/uv/tools/ruff/bin/python", home / ".local/share/uv/python/cp312/bin/python3.12")
    link(home / ".local/bin/ruff", "../share/uv/tools/ruff/bin/ruff")
    put(home / ".local/bin/black", f"#!{home}/.pyenv/versions/3.12.1/bin/python\n", 0o755)
    put(home / ".pyenv/versions/3.12.1/bin/python", "", 0o755)
    put(home / "apps/single/tool.sh", "", 0o755)
    link(home / "bin/tool", home / "apps/tool/bin/tool")
    put(home / "apps/tool/bin/tool", "", 0o755)
    put(home / "npm/node_modules/pnpm/bin/pnpm.cjs", "", 0o755)
    put(home / "npm/notes")
    link(home / "npm/node_modules/.bin/pnpm", "../pnpm/bin/pnpm.cjs")
    link(home / "bin/single", home / "apps/single/tool.sh")
    link(home / "bin/key", home / ".ssh/id_rsa")
    link(home / "bin/key-again", home / "bin/key")
    link(home / ".local/bin/key", home / "bin/key")
    link(home / "bin/all", home)
    link(home / "bin/root", "/")
    link(home / "bin/gone", home / "nowhere")
    link(home / "bin/self", "self")
    return home


TOOLCHAINS = [
    # PATH below the home, readable below the home, why
    ([".pyenv/shims", ".pyenv/bin"], [".pyenv"], "shims need the versions"),
    ([".cargo/bin"], [".cargo/bin", ".cargo/registry", ".rustup"], "never .cargo itself: credentials"),
    ([".nvm/versions/node/v20/bin"], [".nvm/versions/node/v20"], "this version, not the others"),
    (["miniconda3/bin"], ["miniconda3"], "an installation"),
    (
        [".sdkman/candidates/java/current/bin"],
        [".sdkman/candidates/java/17"],
        "through the link of the current version",
    ),
    ([".linuxbrew/bin"], [".linuxbrew"], "Homebrew"),
    ([".asdf/shims"], [".asdf"], "asdf"),
    ([".local/share/mise/shims"], [".local/share/mise"], "mise"),
    (["go/bin"], ["go/bin", "go/pkg"], "never go/src: other projects"),
    ([".bun/bin"], [".bun/bin"], "no installation around it"),
    ([".docker/bin"], [".docker/bin"], "never .docker: the login lies in it"),
    (["projects/bin"], ["projects/bin"], "never projects: it is no installation"),
    ([".ssh"], [], "a secret place is no place for programs"),
    ([".aws/cli/bin"], [], "nor is anything inside one"),
    ([""], [], "nor is the home"),
    (
        [".local/bin"],
        [
            ".local/bin",
            ".local/lib",
            ".local/share/uv/tools/ruff",
            ".local/share/uv/python/cp312",
            ".pyenv/versions/3.12.1",
        ],
        "links, the Python of a tool, and the first lines of scripts",
    ),
    (["npm/node_modules/.bin"], ["npm/node_modules"], "a package needs all of itself, and those beside it"),
    (["bin"], ["bin", "apps/tool", "apps/single/tool.sh"], "where links lead, but to no secret and never to the home"),
]


@pytest.mark.parametrize(("path", "expected", "why"), TOOLCHAINS)
def test_toolchains(top: Path, path: list[str], expected: list[str], why: str) -> None:
    home = home_of(top)
    facts = look_around(top, PATH=":".join([*(f"{home}/{folder}" for folder in path), "/usr/bin"]))
    found = {root.removeprefix(f"{home}/") for root in facts.system if inside(root, str(top))}
    assert found == set(expected), why


@pytest.mark.threat("T62")
def test_what_you_have_fetched_is_read_until_the_sandbox_has_its_own(top: Path) -> None:
    home = home_of(top)
    told = {"PATH": f"{home}/.cargo/bin:{home}/go/bin:/usr/bin"}
    facts, own = look_around(top, **told), {"CARGO_HOME": f"{home}/.cache/cargo", "GOMODCACHE": f"{home}/.cache/go-mod"}
    assert dict(facts.fetching) == own
    assert not own.keys() & dict(facts.caching).keys()
    assert dict(facts.caching)["GOCACHE"] == f"{home}/.cache/go-build"
    (Path(facts.cache) / "cargo/registry").mkdir(parents=True)
    after = look_around(top, **told)
    assert (dict(after.caching)["CARGO_HOME"], list(dict(after.fetching))) == (own["CARGO_HOME"], ["GOMODCACHE"])
    put(top / "project/pnpm-lock.yaml")
    without = look_around(top, PATH="/usr/bin")
    told = {name: value for name, value in without.caching if name.endswith("npm_config_store_dir")}
    assert told == dict.fromkeys(("npm_config_store_dir", "pnpm_config_store_dir"), f"{home}/.cache/pnpm")
    assert "npm_config_store_dir" not in dict(facts.caching), "npm complains of what it does not know"
    assert dict(without.caching)["MAVEN_OPTS"] == f"-Dmaven.repo.local={home}/.cache/maven"
    assert (without.fetching, own.items() <= dict(without.caching).items()) == ((), True)


@pytest.mark.parametrize(
    ("named", "readable"),
    [("home/rust", True), ("home", False), ("home/.ssh", False), ("home/nowhere", False), ("", False)],
)
def test_rust_toolchains_in_an_unusual_place(top: Path, named: str, readable: bool) -> None:
    for folder in ("home/.ssh", "home/rust/toolchains", "home/crates/bin"):
        (top / folder).mkdir(parents=True)
    put(top / "home/crates/bin/rustup", "", 0o755)
    facts = look_around(top, PATH=f"{top}/home/crates/bin:/usr/bin", RUSTUP_HOME=f"{top}/{named}")
    assert (f"{top}/{named}" in facts.system) is readable
    assert f"{top}/home/crates/bin" in facts.system
    without = look_around(top, PATH="/usr/bin", RUSTUP_HOME=f"{top}/{named}")
    assert f"{top}/{named}" not in without.system, "only when PATH leads to rustup"


@pytest.mark.threat("T03")
@given(st.data())
@examples(80, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_law_no_toolchain_opens_a_secret_the_home_or_what_contains_them(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    top = tmp_path_factory.mktemp("law").resolve()
    (top / "home").mkdir()
    home = home_of(top)
    places = [str(path) for path in [top, home, *home.rglob("*")]]
    folders = data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=4))
    for number, target in enumerate(data.draw(st.lists(st.sampled_from(places), max_size=3))):
        link(home / f".local/bin/extra{number}", target)
    secrets = Secrets(PROFILE, str(home), (f"{home}/.local/state/ringfence",))
    for root in roots([os.path.realpath(folder) for folder in folders], f"{top}/elsewhere", secrets):
        assert not secrets.exposed_by(root)
        assert not secrets.holds_folder(root)
        assert not secrets.exposed_by(os.path.realpath(root))
        assert not secrets.holds_folder(os.path.realpath(root))
        assert not secrets.named(os.path.realpath(root))


def test_a_projects_environment_may_use_a_known_interpreter_and_nothing_else(top: Path) -> None:
    home = home_of(top)

    def found() -> list[str]:
        return [root for root in look_around(top).system if inside(root, str(top))]

    python = link(top / "project/.venv/bin/python", home / ".local/share/uv/python/cp312/bin/python3.12")
    assert found() == [f"{home}/.local/share/uv/python/cp312"]
    for target in (
        "projects/bin/python",
        "apps/tool/bin/tool",
        ".ssh/id_rsa",
        ".aws/bin/python",
        ".local/share/uv/python",
        "",
    ):
        python.unlink()
        link(python, home / target)
        assert found() == [], f"the project chose {target}"


def test_outermost() -> None:
    assert outermost(["/a/b", "/a", "/ab", "/a/c/d", "/x/y", "/ab"]) == ("/a", "/ab", "/x/y")


# --- environment ------------------------------------------------------------------------------------------------------


def environment(top: Path, **more: str) -> dict[str, str]:
    facts = look_around(top, **more)
    found = child_environment(facts, environ(top, **more), PROFILE)
    assert list(found) == sorted(found)
    return dict(found)


@pytest.mark.threat("T08")
def test_nothing_enters_but_what_is_named(top: Path) -> None:
    canary = "canary-b4d1"
    secret = [
        "GITHUB_TOKEN",
        "ANTHROPIC_API_KEY",
        "SSH_AUTH_SOCK",
        "DBUS_SESSION_BUS_ADDRESS",
        "LD_PRELOAD",
        "PYTHONPATH",
    ]
    secret += [
        "BASH_ENV",
        "NODE_OPTIONS",
        "GIT_SSH",
        "LESSOPEN",
        "PAGER",
        "EDITOR",
        "HTTPS_PROXY",
        "PWD",
        "XDG_RUNTIME_DIR",
    ]
    secret += ["BASH_FUNC_ls%%", "PERL5OPT", "RIPGREP_CONFIG_PATH", "GIT_DIR", "GIT_CONFIG_GLOBAL", "KUBECONFIG", "LC_"]
    found = environment(top, LANG="C.UTF-8", LC_ALL="C", TZ="UTC", TERM="dumb", **dict.fromkeys(secret, canary))
    found.pop("LC_")  # `LC_*` means it
    assert canary not in "".join(found.values())
    assert (found["LANG"], found["LC_ALL"], found["TZ"], found["TERM"]) == ("C.UTF-8", "C", "UTC", "dumb")
    assert found["HOME"] == str(top / "home")
    assert (found["PAGER"], found["GIT_PAGER"], found["LESSSECURE"], found["TMPDIR"]) == ("cat", "cat", "1", "/tmp")
    rest = {name for name in found if not name.startswith(("GIT_", "LC_"))}
    assert sorted(rest) == [
        "EMAIL", "HOME", "LANG", "LESSSECURE", "MANPAGER", "PAGER", "PATH", "SHELL", "SSH_ASKPASS", "SYSTEMD_PAGER", "TERM",
        "TMPDIR", "TZ",
    ]  # fmt: skip


def test_values_that_a_program_cannot_be_given_are_left_out(top: Path) -> None:
    found = environment(top, LC_A="a\0b", LC_B="\ud800", LC_C="fine", **{"LC_D=x": "y"})
    assert {name for name in found if name.startswith("LC_")} == {"LC_C"}


@pytest.mark.threat("T08")
def test_toolchain_variables_pass_only_when_they_lead_to_what_may_be_read(top: Path) -> None:
    home = home_of(top)
    (top / "project/.venv").mkdir()
    found = environment(
        top,
        PATH=f"{home}/.pyenv/shims:{home}/.cargo/bin:{home}/.sdkman/candidates/java/current/bin:/usr/bin",
        PYENV_ROOT=f"{home}/.pyenv",
        RUSTUP_HOME=f"{home}/.rustup",
        CARGO_HOME=f"{home}/.cargo",
        JAVA_HOME=f"{home}/.sdkman/candidates/java/current",
        VIRTUAL_ENV=f"{top}/project/.venv",
        NVM_DIR=f"{home}/.nvm",
        GOPATH=str(home),
        GOROOT="relative",
        CONDA_PREFIX=f"{home}/.ssh",
        DOTNET_ROOT="/",
    )
    assert found["PYENV_ROOT"] == f"{home}/.pyenv"
    assert found["RUSTUP_HOME"] == f"{home}/.rustup"
    assert found["CARGO_HOME"] == f"{home}/.cargo"
    assert found["JAVA_HOME"] == f"{home}/.sdkman/candidates/java/17"
    assert found["VIRTUAL_ENV"] == f"{top}/project/.venv"
    assert not {"NVM_DIR", "GOPATH", "GOROOT", "CONDA_PREFIX", "DOTNET_ROOT"} & set(found)


@pytest.mark.parametrize(
    ("user", "repository", "expected", "why"),
    [
        ("[user]\n\tname = A B\n\temail = a@b\n", "", ("A B", "a@b"), "the user's"),
        (
            "[user]\nname = A\nemail = a@b\n",
            "[user]\nemail = work@c\n",
            ("A", "work@c"),
            "the repository's wins, as in Git",
        ),
        (
            '[core]\nname = X\n[User]\nName = "A # B" ; c\nEMAIL = a@b # c\n',
            "",
            ("A # B", "a@b"),
            "quotes and comments",
        ),
        ("[user] name = A\n[user]\n email=a@b", "", ("A", "a@b"), "a key beside its section, a section twice"),
        ('[user "x"]\nname = A\n[users]\nemail = a@b\n', "", (None, None), "other sections"),
        ("[user]\nname = A\\\n B\nemail = \x1b[2J\n", "", (None, None), "continued lines and control characters"),
        ("\0\xff[[[", "", (None, None), "no configuration at all"),
        ("", "", (None, None), "nothing"),
    ],
)
def test_author(top: Path, user: str, repository: str, expected: tuple[str | None, str | None], why: str) -> None:
    put(top / "home/.gitconfig", user)
    put(top / "project/.git/config", repository)
    found = environment(top)
    for person in ("AUTHOR", "COMMITTER"):
        assert (found.get(f"GIT_{person}_NAME"), found.get(f"GIT_{person}_EMAIL")) == expected, why


def git(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    folder.mkdir(parents=True, exist_ok=True)
    plain = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    plain |= {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return subprocess.run(
        ["git", *words],
        cwd=folder,
        env=plain if env is None else env,
        capture_output=True,
        text=True,
        check=env is None,
    )


def hostile_repository(top: Path) -> Callable[[], list[str]]:
    """A repository whose own settings start programs at every turn. Answers which of them have run."""
    project = top / "project"
    git(project, "init", "-q")
    put(project / "a", "one\n")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "first")
    put(project / "a", "two\n")
    ran = top / "ran"
    ran.mkdir()

    def program(name: str) -> str:
        return str(put(top / f"evil-{name}", f"#!/bin/sh\n: > {ran}/{name}\ncat\n", 0o755))

    for key, name in (
        ("core.fsmonitor", "fsmonitor"),
        ("core.pager", "pager"),
        ("pager.log", "pager"),
        ("core.editor", "editor"),
        ("sequence.editor", "editor"),
        ("core.askPass", "askpass"),
        ("core.sshCommand", "ssh"),
        ("core.gitProxy", "proxy"),
        ("gpg.program", "gpg"),
        ("credential.helper", "credential"),
        ("core.alternateRefsCommand", "refs"),
        ("interactive.diffFilter", "filter"),
    ):
        git(project, "config", key, program(name))
    for key, value in (("commit.gpgSign", "true"), ("log.showSignature", "true"), ("protocol.ext.allow", "always")):
        git(project, "config", key, value)
    hooks = top / "hooks"
    for hook in ("pre-commit", "post-commit", "post-index-change", "post-checkout", "reference-transaction"):
        put(hooks / hook, f"#!/bin/sh\n: > {ran}/hook\n", 0o755)
        put(project / ".git/hooks" / hook, f"#!/bin/sh\n: > {ran}/hook\n", 0o755)
    git(project, "config", "core.hooksPath", str(hooks))
    return lambda: sorted(path.name for path in ran.iterdir())


@pytest.mark.threat("T30")
def test_git_runs_none_of_what_a_hostile_repository_names(top: Path) -> None:
    ran = hostile_repository(top)
    put(top / "home/.gitconfig", "[user]\nname = A B\nemail = a@b\n")
    env = environment(top)
    for words, expected in (
        (("status",), 0),
        (("diff",), 0),
        (("log", "-p"), 0),
        (("show",), 0),
        (("add", "."), 0),
        (("commit", "-m", "second"), 0),
        (("commit", "--amend"), 0),
        (("branch", "-a"), 0),
        (("blame", "a"), 0),
        (("stash", "list"), 0),
        (("tag", "-a", "v1", "-m", "x"), 0),
        (("rebase", "--force-rebase", "HEAD~1"), 0),
        (("fetch", "ext::sh -c x"), 128),
        (("fetch", "https://127.0.0.1:1/x"), 128),
        (("fetch", "ssh://127.0.0.1:1/x"), 128),
        (("fetch", "git://127.0.0.1:1/x"), 128),
    ):
        done = git(top / "project", *words, env=env)
        assert done.returncode == expected, (words, done.stderr)
        assert ran() == [], words
    shown = git(top / "project", "log", "-1", "--format=%an <%ae> %cn <%ce>", env=env)
    assert shown.stdout == "A B <a@b> A B <a@b>\n"
    # The judge of this test: without our environment the same repository does run them.
    bare = {"PATH": env["PATH"], "HOME": env["HOME"]}
    git(top / "project", "status", env=bare)
    put(top / "project/a", "three\n")
    git(top / "project", "commit", "-a", "-m", "x", env=bare)
    assert {"fsmonitor", "hook", "gpg"} <= set(ran())


def test_git_trusts_the_workspace_whoever_owns_it(top: Path) -> None:
    git(top / "project", "init", "-q")
    env = environment(top)
    # A variable of Git for tests: Git treats every repository as owned by another user.
    stranger = {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
    assert git(top / "project", "status", env=env | stranger).returncode == 0
    assert git(top / "project", "status", env={"PATH": env["PATH"], "HOME": env["HOME"]} | stranger).returncode == 128


def test_gather_takes_any_profile(top: Path) -> None:
    empty = Profile((), (), (), (), (), (), (), ())
    facts = gather(str(top / "project"), {}, empty)
    assert facts.workspace == str(top / "project")
    assert dict(child_environment(facts, {"LANG": "C"}, empty)).get("LANG") is None


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"LANG": "de_DE.UTF-8"}, {"LANG": "de_DE.UTF-8"}),
        ({"LANG": "en_US.utf8", "LC_ALL": "C"}, {"LANG": "en_US.utf8", "LC_ALL": "C"}),
        ({"LANG": "zh_CN.GBK"}, {"LANG": "C.UTF-8"}),
        ({"LC_ALL": "ja_JP.SJIS", "LC_TIME": "de_DE@euro"}, {"LC_ALL": "C.UTF-8", "LC_TIME": "C.UTF-8"}),
    ],
)
def test_a_locale_in_which_bytes_read_otherwise_is_replaced(given: dict[str, str], kept: dict[str, str]) -> None:
    from runner.facts.environment import _locale

    assert {**given, **_locale(given)} == kept
