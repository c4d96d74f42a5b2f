"""Tests of the profile file: read strictly, with helpful errors, and only narrowing."""

from dataclasses import fields, replace
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model.assessment import RuleKind, RuleRef
from policy.model.credential import Credential
from policy.model.host_rule import HostRule
from policy.model.profile import Layer, PermissionRule, Profile, lower, narrow
from policy.model.secret_paths import Secrets
from policy.model.tier import MATRIX, Mode, Ruling, no_looser
from policy.model.verdict import Limits, limit_names
from policy.toml.profile import LIMITS, ProfileError, parse_profile
from tests.support.places import ROOT

TEXT = (ROOT / "profiles" / "default.toml").read_text()
DEFAULT = parse_profile(TEXT, "profiles/default.toml")
SECRETS = Secrets(DEFAULT, "/home/u", ("/srv/state",))

SMALL = """\
[secret]
home = [".ssh"]
paths = ["/etc/shadow"]
names = [".env", "*.pem"]
public = [".env.example"]
[locked]
paths = [".git/hooks"]
[system]
folders = ["/usr"]
etc = ["passwd"]
[environment]
names = ["LANG", "LC_*"]
[deny]
commands = [["rm", "-rf", "*"]]
[limits]
wall = 5.5
memory = "2 GiB"
open_files = 64
"""


def test_every_part_reaches_the_profile() -> None:
    assert parse_profile(SMALL, "x.toml") == Profile(
        secret_home=(".ssh",),
        secret_paths=("/etc/shadow",),
        secret_names=(".env", "*.pem"),
        public_names=(".env.example",),
        locked=(".git/hooks",),
        system=("/usr",),
        etc=("passwd",),
        environment=("LANG", "LC_*"),
        denied=(("rm", "-rf", "*"),),
        limits=replace(Limits(), wall=5.5, memory=2 << 30, open_files=64),
    )


def test_limits_have_the_names_that_users_type_and_the_packaged_values() -> None:
    assert sorted(name.replace("_", "-") for name in LIMITS) == sorted(limit_names())
    assert DEFAULT.limits == Limits()


BROKEN = [
    # line of SMALL to replace, new text, line reported, parts of the answer, why
    ('home = [".ssh"]', 'hoem = [".ssh"]', 2, ["`secret.hoem`", "`secret.home`"], "the nearest key"),
    ("[locked]", "[lokced]", 6, ["`lokced`", "`locked`"], "the nearest table"),
    ("wall = 5.5", "wal = 5.5", 16, ["`limits.wal`", "`limits.wall`"], "the nearest limit"),
    ("wall = 5.5", "wall = 0", 16, ["`limits.wall`", "above 0"], "no time at all"),
    ("wall = 5.5", "wall = -1.5", 16, ["above 0"], "negative"),
    ("wall = 5.5", "wall = nan", 16, ["above 0"], "not a number"),
    ("wall = 5.5", "wall = inf", 16, ["above 0"], "endless"),
    ("wall = 5.5", 'wall = "5 parrots"', 16, ["a number of seconds"], "a text that is no time"),
    ("wall = 5.5", "wall = true", 16, ["a number of seconds"], "a switch"),
    ('memory = "2 GiB"', 'memory = "many"', 17, ["`limits.memory`", "512 MiB"], "no size"),
    ('memory = "2 GiB"', "memory = 1.5", 17, ["512 MiB"], "part of a byte"),
    ('memory = "2 GiB"', "memory = 99999999999999999999", 17, ["512 MiB"], "more than can be counted"),
    ("open_files = 64", "open-files = 64", 18, ["`limits.open_files`"], "the other spelling"),
    ("open_files = 64", "pids = 0", 18, ["a whole number above 0"], "no process at all"),
    ('home = [".ssh"]', 'home = ".ssh"', 2, ["a list of texts"], "not a list"),
    ('home = [".ssh"]', "home = [1]", 2, ["a list of texts"], "not texts"),
    ('home = [".ssh"]', 'home = [""]', 2, ["a list of texts"], "an empty one would be the whole home"),
    ('home = [".ssh"]', 'home = ["/home/u/.ssh"]', 2, ["must not start with `/`"], "relative to the home"),
    ('home = [".ssh"]', 'home = ["~/.ssh"]', 2, ["may not contain"], "the home is meant anyway"),
    ('home = [".ssh"]', 'home = ["../x"]', 2, ["may not contain"], "leads out"),
    ('home = [".ssh"]', 'home = ["*"]', 2, ["everything"], "would stop all work"),
    ('paths = ["/etc/shadow"]', 'paths = ["etc/shadow"]', 3, ["must start with `/`"], "absolute"),
    (
        'paths = ["/etc/shadow"]',
        'paths = ["/etc/[s]hadow"]',
        3,
        ["`*` and `?`"],
        "a pattern that would silently not match",
    ),
    ('names = [".env", "*.pem"]', 'names = ["a/b/.env"]', 4, ["takes names"], "a path among names"),
    ('names = [".env", "*.pem"]', 'names = ["*"]', 4, ["everything"], "would hide the whole project"),
    ('folders = ["/usr"]', 'folders = ["/"]', 9, ["`*` and `?`"], "everything would be readable"),
    ('names = ["LANG", "LC_*"]', 'names = ["GITHUB_TOKEN"]', 12, ["credential"], "a credential"),
    ('names = ["LANG", "LC_*"]', 'names = ["AWS_*", "*"]', 12, ["variable name"], "everything"),
    ('names = ["LANG", "LC_*"]', 'names = ["A=B"]', 12, ["variable name"], "no name"),
    ('commands = [["rm", "-rf", "*"]]', 'commands = ["rm -rf *"]', 14, ["a list of lists"], "a text, not words"),
    ('commands = [["rm", "-rf", "*"]]', "commands = [[]]", 14, ["a list of lists"], "no words"),
    ('commands = [["rm", "-rf", "*"]]', 'commands = [["*", "x"]]', 14, ["every program"], "would stop all work"),
    ("[limits]", "[limits", 15, ["TOML"], "broken syntax"),
    ("wall = 5.5", "wall = 5.5\nwall = 6", 17, ["TOML"], "twice"),
]


@pytest.mark.parametrize(("old", "new", "line", "parts", "why"), BROKEN)
def test_a_mistake_is_named_with_file_line_key_and_nearest_key(
    old: str, new: str, line: int, parts: list[str], why: str
) -> None:
    head, found, tail = SMALL.partition(old)
    assert found
    with pytest.raises(ProfileError) as caught:
        parse_profile(head + new + tail, "x.toml")
    problem = caught.value.problem
    assert f"x.toml:{line}" in problem.what, (why, problem)
    assert all(part in str(problem) for part in parts), (why, problem)
    assert problem.fix


@pytest.mark.threat("T44")
@pytest.mark.parametrize("line", [line for line in SMALL.splitlines() if " = [" in line and "commands" not in line])
def test_a_list_that_is_not_there_stops_the_program(line: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse_profile(SMALL.replace(line + "\n", ""), "x.toml")
    assert "is missing" in caught.value.problem.what


@given(st.text(max_size=200))
def test_law_any_short_text_is_a_problem_and_nothing_worse(text: str) -> None:
    # No text at all is a whole profile: every list must be there. So this one ends in a Problem, and in nothing else.
    with pytest.raises(ProfileError) as caught:
        parse_profile(text, "x.toml")
    assert caught.value.problem.what.startswith("x.toml")
    assert caught.value.problem.what.isprintable()


@pytest.mark.threat("T41")
@pytest.mark.parametrize(
    "text", ["a = " + "[" * 20_000, "a = " + "1" * 10_000, "[" + "a." * 5000 + "b]", '"\\u001b[2J" = 1']
)
def test_hostile_toml_is_a_problem(text: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse_profile(text, "x.toml")
    assert str(caught.value.problem).isprintable()


# --- what the packaged profile protects -------------------------------------------------------------------------------

HOME_SECRETS = [
    ".ssh/id_rsa", ".ssh", ".ssh/config", ".aws/credentials", ".gnupg/secring.gpg", ".kube/config",
    ".docker/config.json", ".netrc", ".npmrc", ".pypirc", ".git-credentials", ".config/gh/hosts.yml",
    ".config/gcloud/credentials.db", ".cargo/credentials", ".cargo/credentials.toml",
    ".mozilla/firefox/x/logins.json", ".config/google-chrome/Default/Cookies",
    ".local/share/keyrings/login.keyring", ".password-store/a.gpg", ".bash_history", ".zsh_history",
    ".python_history", ".azure/token", ".m2/settings.xml", ".config/ringfence/config.toml",
    ".local/state/ringfence/audit.db", ".cache/ringfence/x",
    # the secret files of other agents
    ".claude/.credentials.json", ".claude/backups/.claude.json.backup.17", ".claude/history.jsonl", ".claude/ide",
    ".claude/shell-snapshots", ".claude.json", ".codex/auth.json", ".codex/auth.json.bak", ".codex/.credentials.json",
    ".codex/history.jsonl", ".gemini/oauth_creds.json", ".gemini/mcp-oauth-tokens-v2.json", ".gemini/tmp/a/shell_history",
    ".gemini/.env", ".cursor/projects/a/mcp-auth.json", ".config/Cursor/User/globalStorage/state.vscdb", ".factory/auth.json",
    ".factory/config.json", ".qwen/oauth_creds.json", ".CLAUDE/.Credentials.json",
    # folders and files of single services
    ".op/config", ".1password", ".credentials/x", ".secrets/x", ".keys/x", ".gcloud/x", ".vercel/auth.json", ".heroku/x",
    ".wandb/settings", ".nuget/NuGet/NuGet.Config", ".config/NuGet/NuGet.Config", ".config/nix/nix.conf", ".config/nix/netrc",
]  # fmt: skip
OTHER_SECRETS = [
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/sudoers", "/etc/sudoers.d/x",
    "/etc/ssh/ssh_host_ed25519_key", "/etc/ssl/private/x.key", "/run/secrets/db", "/var/run/docker.sock",
    "/run/docker.sock", "/proc/1/environ", "/proc/self/environ", "/proc/12/mem", "/proc/kcore",
    "/run/user/1000/bus", "/dev/sda1", "/dev/mem", "/srv/state/audit.db", "/w/.env", "/w/.env.production",
    "/w/a/server.key", "/w/private.pem", "/w/client.pem", "/w/id_rsa", "/w/id_ed25519_work", "/w/credentials.json", "/w/a.p12",
    "/w/store.jks",
]  # fmt: skip
OPEN = [
    "/w/.env.example", "/w/.env.sample", "/w/.env.local.example", "/w/id_rsa.pub", "/w/id_ed25519.pub",
    "/w/cacert.pem", "/w/cert.pem", "/w/tls/fullchain.pem", "/w/src/env.py", "/w/key.py", "/w/keys.md", "/w/.envrc", "/w/package.json", "/etc/passwd",
    "/etc/hosts", "/etc/ssh/ssh_config", "/etc/ssh/ssh_host_rsa_key.pub", "/proc/cpuinfo", "/home/u/src/a.py",
    "/home/u/.cargo/registry/x", "/home/u/.pyenv/shims/python", "/home/u/.gitconfig", "/home/u/.sshx",
    "/home/u/.docker/cli-plugins/x", "/home/v/notes", "/home/u/.local/share/applications/x", "/var/tmp/x",
    "/home/u/.claude", "/home/u/.claude/projects/w/t.jsonl", "/home/u/.claude/skills/x/SKILL.md", "/home/u/.gemini/tmp/a/logs.json",
    "/home/u/.codex/config.toml", "/home/u/.codex/sessions/t.jsonl", "/home/u/.cursor/mcp.json", "/home/u/.factory/droids/x.md",
    "/w/.claude/settings.json", "/w/.cursor/rules/x.mdc", "/w/history.jsonl",
]  # fmt: skip


@pytest.mark.threat("T03")
@pytest.mark.parametrize("path", [*(f"/home/u/{path}" for path in HOME_SECRETS), *OTHER_SECRETS])
def test_the_packaged_profile_calls_it_secret(path: str) -> None:
    assert SECRETS.holds(path)


@pytest.mark.parametrize("path", OPEN)
def test_the_packaged_profile_leaves_it_open(path: str) -> None:
    assert not SECRETS.holds(path)


@pytest.mark.parametrize(
    "path", ["/", "/home", "/home/u", "/home/u/.config", "/home/u/.local/share", "/etc", "/etc/ssl", "/srv"]
)
def test_a_folder_above_a_secret_exposes_it(path: str) -> None:
    assert SECRETS.exposed_by(path)
    assert SECRETS.exposed_by(path + "/")


@pytest.mark.parametrize(
    "path", ["/usr", "/etc/ssl/certs", "/home/u/src", "/home/u/.pyenv", "/home/v", "/var/tmp", "/srv/other"]
)
def test_other_folders_do_not(path: str) -> None:
    assert not SECRETS.exposed_by(path)


@pytest.mark.threat("T170")
@pytest.mark.parametrize(
    "path",
    [
        ".claude", ".claude/settings.json", ".claude/skills/x/SKILL.md", ".codex/config.toml", ".gemini/GEMINI.md",
        ".cursor/hooks.json", ".factory/mcp.json", ".qwen/x", ".bashrc", ".zprofile", ".zshenv", ".gitconfig", ".RIPGREPRC",
    ],
)  # fmt: skip
def test_files_of_the_home_that_programs_run_are_known(path: str) -> None:
    assert SECRETS.runs_from_home(f"/home/u/{path}")
    assert not SECRETS.runs_from_home(f"/home/v/{path}")
    assert not SECRETS.runs_from_home(f"/home/u/src/{path}")


@pytest.mark.parametrize("path", ["/home/u", "/", "/home/u/.claudex", "/home/u/notes", "/home/u/.config/x"])
def test_other_files_of_the_home_are_not(path: str) -> None:
    assert not SECRETS.runs_from_home(path)


LOCKED = [
    ".git/hooks", ".git/hooks/pre-commit", ".git/config", ".git/info/attributes", ".git/modules/a/config",
    ".git/modules/a/b/hooks/x", ".vscode", ".vscode/tasks.json", ".idea/x", ".envrc", ".husky/pre-commit",
    ".mcp.json", ".ringfence/config.toml", ".claude/settings.json", ".devcontainer", "vendor/lib/.git/config",
    "deep/er/.vscode/settings.json", ".pdbrc", ".irbrc", ".Rprofile", ".iex.exs",
    # editors
    ".helix/languages.toml", ".dir-locals-2.el", "x.code-workspace", "a/b/My Work.code-workspace", ".lazy.lua", ".lvimrc", ".local.vimrc",
    ".run/x.run.xml", ".nova/Configuration.json", ".theia/tasks.json", ".lite_project.lua", "x.sublime-project", ".bsp/x.json", "hie.yaml",
    "Session.vim", ".projections.json", ".atom-build.yml", ".merlin", ".ghcid",
    # managers of hooks and sessions, version control, servers of pages
    ".githooks/pre-commit", ".trunk/trunk.yaml", "cog.toml", ".git/machete-hooks/x", ".pijul/config.toml", "_MTN/monotonerc", ".tgitconfig",
    ".tmuxinator.yml", ".smug.yml", ".tmuxp.yaml", ".powrc", ".pumaenv", ".valet-env.php", "LocalValetDriver.php",
    # clients of databases, programs of science and electronics
    ".myclirc", "clickhouse-client.xml", "login.sql", ".pymolrc.py", ".vmdrc", ".spiceinit", ".magicrc", "xschemrc", "gafrc", ".cdsinit",
    ".synopsys_dc.setup", "login.cl", ".swiplrc", ".mapleinit",
    # languages and debuggers
    ".RData", ".Renviron", ".perldb", "startup.m", ".erlang", ".rdbgrc", ".byebugrc", "rootlogon.C", ".psysh.php", "ipython_config.py",
    # agents
    ".gitlab/duo/mcp.json", ".github/lsp.json", ".github/agents/x.agent.md", ".mcphub/servers.json", ".llxprt/settings.json",
    ".aider.conf.yml", "opencode.json", ".crush.json", ".clinerules/hooks/PreToolUse", ".amazonq/mcp.json", ".factory/settings.json",
    ".qwen/settings.json", ".augment/x", ".trae/mcp.json", ".junie/mcp/mcp.json", ".kilocode/mcp.json", ".agent/rules", "mcp.json",
    ".github/hooks/x.json", ".openhands/setup.sh", ".pi/extensions/x.ts", ".iflow/settings.json",
    # hook managers, version managers, other version control
    ".pre-commit-config.yaml", "lefthook.yml", ".lefthook.toml", "lefthook-local.yaml", ".config/lefthook.yml", ".overcommit.yml",
    "captainhook.json", "grumphp.yml", ".lintstagedrc.json", "lint-staged.config.mjs", "hk.pkl", ".huskyrc.js", "mise.toml", ".mise.toml",
    "mise.local.toml", ".config/mise/config.toml", ".sl/config", "_darcs/prefs/defaults", ".pijul/config", ".bzr/branch/branch.conf",
    ".autoenv.zsh", ".shadowenv.d/x.lisp", ".lazygit.yml", ".git/sl/config", ".envrc.local", "buildServer.json", ".ropeproject/config.py",
    "commitlint.config.mjs", ".commitlintrc.json", ".czrc", "simple-git-hooks.cjs", ".simple-git-hooks.json", ".gtrconfig", ".wtp.yml",
    ".config/wt.toml", ".cproject", ".settings/language.settings.xml", "x.pro.user", "CMakeLists.txt.user", "x.kdev4", "x.geany",
    ".vimspector.json", ".lsp/config.edn", ".tern-project", ".lintr", "gtags.conf", ".rvmrc", ".prototools", "bin/hermit",
    ".tmux-sessionizer", "scilab.ini", ".serena/project.yml", ".refact/integrations.d/x.yaml", ".eca/config.json", ".letta/settings.json",
    "agents.config.json", "mcp_servers.json", ".superset/config.json", ".emdash.json",
]  # fmt: skip
EDITED_DAILY = [
    ".git/index", ".git/HEAD", ".git/refs/heads/main", ".git/objects/ab/cd", ".git/logs/HEAD",
    ".git/COMMIT_EDITMSG", ".git/info/exclude", "package.json", "Makefile", "src/a.py", ".github/workflows/ci.yml",
    ".gitignore", ".gitattributes", "pyproject.toml", "AGENTS.md", "CLAUDE.md", ".npmrc",
    "Cargo.toml", "conftest.py", "build.gradle", "eslint.config.js", ".eslintrc.js", ".tool-versions", ".nvmrc", ".config/x.toml", ".github",
    ".config", "mise-notes.md", "src/agent/x.py", "docs/mcp.json.md", "rust-toolchain.toml", ".cargo/config.toml", ".env.example", "config", "hooks/x",
    "tests/.git-config", ".yarnrc.yml", ".pnpmfile.cjs", "bunfig.toml", ".bazelrc", ".bundle/config", "sitecustomize.py", ".pylintrc",
    ".prettierrc.js", "queries/login_user.sql", "login.py", ".gitlab-ci.yml", ".gitlab/issue_templates/x.md", ".github/dependabot.yml",
    ".github/copilot-instructions.md", ".trunk/configs/x.yaml", "flake.nix", "docker-compose.yml", "session.py", ".nvmrc", ".python-version",
]  # fmt: skip


@pytest.mark.threat("T16")
@pytest.mark.parametrize("path", LOCKED)
def test_what_programs_run_by_themselves_is_locked(path: str) -> None:
    assert SECRETS.locked_in(f"/w/{path}", "/w")
    assert not SECRETS.locked_in(f"/w/{path}", "/elsewhere")


@pytest.mark.parametrize("path", EDITED_DAILY)
def test_what_people_edit_every_day_is_not(path: str) -> None:
    assert not SECRETS.locked_in(f"/w/{path}", "/w")


@pytest.mark.threat("T16")
def test_every_locked_name_says_which_program_obeys_it() -> None:
    rows = TEXT.partition("[locked]")[2].partition("\n]")[0].splitlines()
    names = [row for row in rows if row.strip().startswith('"')]
    assert len(names) > 50
    assert [row for row in names if not row.partition("#")[2].strip()] == []
    assert len(set(DEFAULT.locked)) == len(DEFAULT.locked)


def test_the_home_is_exposed_even_when_no_list_says_what_is_secret_in_it() -> None:
    secrets = Secrets(replace(DEFAULT, secret_home=(), secret_paths=()), "/home/u", ())
    assert [path for path in ("/", "/home", "/home/u", "/home/u/src", "/home/v") if secrets.exposed_by(path)] == [
        "/",
        "/home",
        "/home/u",
    ]


def _listed(path: str, entries: list[str]) -> bool:
    """The definition, written plainly: one of the entries, or below one. `*` and `?` match within one name."""
    have = [word for word in path.split("/") if word]
    wanted = [[word for word in entry.split("/") if word] for entry in entries]
    return any(len(have) >= len(one) and all(map(fnmatchcase, have, one)) for one in wanted)


_ENTRY = st.lists(st.sampled_from(["a", "b", "*", "a*", "*b", "a*b", "?"]), min_size=1, max_size=3).map("/".join)
_BELOW = st.lists(st.sampled_from(["a", "b", "ab", "aab", "c", "home", "u", "w"]), max_size=5).map("/".join)


@given(st.lists(_ENTRY, max_size=4), st.lists(_ENTRY, max_size=4), st.lists(_ENTRY, max_size=3), _BELOW)
def test_law_the_sorted_lists_say_what_the_lists_say(
    home: list[str], paths: list[str], names: list[str], below: str
) -> None:
    names = [name for name in names if "/" not in name]
    profile = replace(
        DEFAULT, secret_home=tuple(home), secret_paths=tuple(f"/{path}" for path in paths), locked=tuple(paths),
        secret_names=tuple(names), public_names=("ab",),
    )  # fmt: skip
    secrets = Secrets(profile, "/home/u", ("/c/state",))
    entries = [*(f"/home/u/{entry}" for entry in home), *profile.secret_paths, "/c/state"]
    for path in (f"/{below}".rstrip("/") or "/", f"/home/u/{below}".rstrip("/")):
        assert secrets.holds_folder(path) is _listed(path, entries)
        last = path.rpartition("/")[2]
        assert secrets.named(path) is (last != "ab" and any(fnmatchcase(last, name) for name in names))
        above = any(_listed("/".join(entry.split("/")[:count]), [path]) for entry in entries for count in range(2, 9))
        if "*" not in "".join(entries) and "?" not in "".join(entries):
            assert secrets.exposed_by(path) is (above or path.strip("/") in ("", "home", "home/u"))
    inside = [word for word in below.split("/") if word]
    assert secrets.locked_in(f"/w/{below}", "/w") is any(
        _listed("/".join(inside[start:]), list(paths)) for start in range(len(inside))
    )


def test_home_with_pattern_characters_is_taken_literally() -> None:
    secrets = Secrets(DEFAULT, "/home/[u]*", ())
    assert secrets.holds("/home/[u]*/.ssh/x")
    assert not secrets.holds("/home/ux/.ssh/x")


@pytest.mark.threat("T08")
def test_no_name_of_a_credential_is_passed_on() -> None:
    names = ["GITHUB_TOKEN", "ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "LD_PRELOAD", "PYTHONPATH"]
    names += ["BASH_ENV", "NODE_OPTIONS", "DBUS_SESSION_BUS_ADDRESS", "GIT_SSH_COMMAND", "LESSOPEN", "HTTPS_PROXY"]
    assert not [name for name in names if any(fnmatchcase(name, pattern) for pattern in DEFAULT.environment)]


# --- narrowing --------------------------------------------------------------------------------------------------------

names = st.lists(st.sampled_from(["a", "b", "c", "d", "*.e"]), max_size=4).map(tuple)
numbers = st.integers(1, 1000)
limits = st.builds(Limits, numbers.map(float), numbers, numbers, numbers, numbers, numbers, numbers)
commands = st.lists(names.filter(bool), max_size=3).map(tuple)
verdicts, layers = st.sampled_from(Ruling), st.sampled_from(Layer)
written = st.builds(
    PermissionRule, verdicts, st.builds(RuleRef, st.just(RuleKind.USER), st.just("c.toml"), st.integers(1, 9)), layers
)
rules = st.lists(written, max_size=4).map(tuple)
lent = st.sampled_from(["forge", "index"]).map(
    lambda name: (
        Credential(
            name,
            (HostRule("a.test"),),
            "A",
            "{secret}",
            "",
            ("env", "A"),
            (),
            True,
            False,
            RuleRef(RuleKind.USER, "c", 1),
        ),
    )
)
profiles = st.builds(
    Profile, names, names, names, names, names, names, names, names, commands, limits, rules, st.booleans(), lent,
    st.sampled_from(["", "/a", "/b"]), names, st.sampled_from(["", "/a", "/b"]),
)  # fmt: skip

MORE_IS_STRICTER = ("secret_home", "secret_paths", "secret_names", "locked", "personal", "denied")
LESS_IS_STRICTER = ("public_names", "system", "etc", "environment")


@pytest.mark.threat("T23")
@given(profiles, profiles)
def test_law_narrowing_never_widens(base: Profile, by: Profile) -> None:
    found = narrow(base, by)
    for field in MORE_IS_STRICTER:
        assert set(getattr(found, field)) >= set(getattr(base, field)) | set(getattr(by, field))
    for field in LESS_IS_STRICTER:
        assert set(getattr(found, field)) <= set(getattr(base, field)) & set(getattr(by, field))
    for field in limit_names():
        name = field.replace("-", "_")
        assert getattr(found.limits, name) == min(getattr(base.limits, name), getattr(by.limits, name))
    allows = {rule for rule in found.permissions if rule.verdict is Ruling.ALLOW}
    assert allows <= set(base.permissions)
    assert set(found.permissions) - allows >= {
        rule for rule in (*base.permissions, *by.permissions) if rule.verdict is not Ruling.ALLOW
    }
    assert found.unix_sockets is (base.unix_sockets and by.unix_sockets)
    yours = [(each.credentials, each.bundle, each.authority) for each in (found, base)]
    assert yours[0] == yours[1], "nobody else lends yours, or their own"
    named = {*MORE_IS_STRICTER, *LESS_IS_STRICTER, "limits", "permissions", "unix_sockets", "credentials", "bundle"}
    named.add("authority")
    assert {field.name for field in fields(Profile)} == named, "a new field must say which way is stricter"


@given(profiles, profiles)
def test_law_narrowing_twice_changes_nothing_more(base: Profile, by: Profile) -> None:
    once = narrow(base, by)
    assert narrow(once, by) == once
    assert narrow(narrow(base, base), base) == narrow(base, base)


@given(limits, limits)
def test_law_lower_is_the_lower_of_both(first: Limits, second: Limits) -> None:
    assert lower(first, second) == lower(second, first)
    assert lower(first, first) == first


@pytest.mark.parametrize(
    ("mode", "than", "expected"),
    [
        (Mode.PLAN, Mode.DEFAULT, True),
        (Mode.PLAN, Mode.DONT_ASK, True),
        (Mode.DEFAULT, Mode.TRUST_PROJECT, True),
        (Mode.TRUST_PROJECT, Mode.DEFAULT, False),
        (Mode.DONT_ASK, Mode.DEFAULT, False),
        (Mode.DEFAULT, Mode.DONT_ASK, False),
        (Mode.DANGEROUSLY, Mode.TRUST_PROJECT, False),
        (Mode.DEFAULT, Mode.DEFAULT, True),
    ],
)
def test_which_mode_is_no_looser(mode: Mode, than: Mode, expected: bool) -> None:
    assert no_looser(mode, than) is expected
    assert expected == all(row[mode] >= row[than] for row in MATRIX.values())
