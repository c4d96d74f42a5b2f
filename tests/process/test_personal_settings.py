"""Tests of the user's settings that name files in the workspace: files that programs would run are locked."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from policy.languages.git_config import possible_settings
from policy.languages.settings_paths import SettingKind, setting_paths
from runner.config.personal_settings import personal_patterns
from tests.support import forked_agent
from tests.support.agent_program import AGENT

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# ---- which words of a value are paths

# fmt: off
VALUES = [
    (SettingKind.COMMAND, "./x",                                   {"./x"},               "a relative path"),
    (SettingKind.COMMAND, "!tools/x get",                          {"tools/x"},           "a command for the shell"),
    (SettingKind.COMMAND, "code --wait",                           set(),                 "a program on PATH"),
    (SettingKind.COMMAND, "git-lfs clean -- %f",                   set(),                 "placeholders are no paths"),
    (SettingKind.COMMAND, "emacsclient -c -a emacs",               set(),                 "nor are plain arguments"),
    (SettingKind.COMMAND, "gcloud.sh",                             set(),                 "a name without `/` is looked for on PATH"),
    (SettingKind.COMMAND, "sh edit.sh -w",                         {"edit.sh"},           "the file that a shell reads"),
    (SettingKind.COMMAND, "env A=b python3 -u tools/x",            {"tools/x"},           "behind a wrapper"),
    (SettingKind.COMMAND, "python -m pkg.mod",                     {"pkg/mod", "pkg/mod.py"}, "a module, looked for in the current folder first"),
    (SettingKind.COMMAND, "sh -c './a \"$1\" | b/c'",              {"./a", "b/c"},        "a command line in a word"),
    (SettingKind.COMMAND, "'my tools/x' -w",                       {"tools/x", "my tools/x"}, "a path with a blank"),
    (SettingKind.COMMAND, '"$PWD/tools/x" a',                      {"./tools/x"},         "the current folder by its variable"),
    (SettingKind.COMMAND, "$(git rev-parse --show-toplevel)/t/x",  {"./t/x"},             "the top of the worktree"),
    (SettingKind.COMMAND, "`pwd`/t/x",                             {"./t/x"},             "the same in the old spelling"),
    (SettingKind.COMMAND, "$GIT_DIR/x",                            {".git/x"},            "Git's own folder"),
    (SettingKind.COMMAND, "$SOMEWHERE/t/x",                        {"t/x"},               "what nobody knows may be the workspace"),
    (SettingKind.COMMAND, "${TOOLS}/x",                            {"/opt/tools/x"},      "what the environment says is known"),
    (SettingKind.COMMAND, "tools/$NAME/x",                         {"tools"},             "any file of the folder"),
    (SettingKind.COMMAND, "vim -u ./vimrc",                        {"./vimrc"},           "settings that an argument names"),
    (SettingKind.COMMAND, "less --lesskey-src=./k",                {"./k"},               "in a flag"),
    (SettingKind.COMMAND, "-r./x --import=./y.mjs",                {"./x", "./y.mjs"},    "flags in a variable"),
    (SettingKind.COMMAND, "-javaagent:./a.jar -Dx=./t",            {"./a.jar"},           "an agent runs, a property does not"),
    (SettingKind.COMMAND, "| /usr/bin/lesspipe %s",                {"/usr/bin/lesspipe"}, "a pipe"),
    (SettingKind.COMMAND, "@init.lua",                             {"init.lua"},          "a file that a variable names"),
    (SettingKind.TYPED,   '!f() { ./t/x "$@"; }; f',               {"./t/x"},             "a function of an alias"),
    (SettingKind.TYPED,   "!npx eslint src/ tests/",               set(),                 "what an alias reads is not locked"),
    (SettingKind.TYPED,   "!cd src && bash run.sh",                {"run.sh"},            "what it runs is"),
    (SettingKind.TYPED,   "-c core.fsmonitor=./x status",          {"./x"},               "a setting inside an alias"),
    (SettingKind.TYPED,   "log --oneline -5",                      set(),                 "another command of Git"),
    (SettingKind.TYPED,   r"\[\033[1m\]\u:\w$(./ps1)\$ ",          {"./ps1"},             "a prompt that runs something"),
    (SettingKind.LIST,    "/usr/lib/a.so:./b.so",                  {"/usr/lib/a.so", "./b.so"}, "a list"),
    (SettingKind.MODULES, "src",  {"src/sitecustomize.py", "src/sitecustomize", "src/usercustomize.py", "src/usercustomize"}, "what Python imports at every start"),
]
# fmt: on


@pytest.mark.parametrize(("kind", "value", "expected", "why"), VALUES, ids=[row[3] for row in VALUES])
def test_which_words_are_paths(kind: SettingKind, value: str, expected: set[str], why: str) -> None:
    assert set(setting_paths(kind, value, {"TOOLS": "/opt/tools"})) == expected, why


def test_text_that_git_may_refuse_is_read_all_the_same() -> None:
    assert ("core.hookspath", ".h") in possible_settings(b'[core]\nhooksPath = .h\n[x "y\n = 1\n')
    assert possible_settings(b"") == ()


# ---- where settings stand

# fmt: off
PLACES = [
    ({"~/.gitconfig": "[core]\nhooksPath = .githooks\n"},                {}, ".githooks",   "the user's file"),
    ({"~/.config/git/config": "[core]\nfsmonitor = ./mon\n"},            {}, "mon",         "the other one"),
    ({"~/x/git/config": "[core]\npager = sh pg\n"}, {"XDG_CONFIG_HOME": "~/x"}, "pg",       "moved by XDG_CONFIG_HOME"),
    ({"~/g": "[diff]\nexternal = tools/d\n"}, {"GIT_CONFIG_GLOBAL": "~/g"},  "tools/d",     "in the place of the user's file"),
    ({"~/g": "[core]\neditor = ./ed\n"},  {"GIT_CONFIG_SYSTEM": "~/g"},  "ed",              "in the place of the system's"),
    ({"~/.gitconfig": "[include]\npath = a\n", "~/a": "[include]\npath = b/c\n", "~/b/c": "[init]\ntemplateDir = tpl\n"}, {}, "tpl", "included twice"),
    ({"~/.gitconfig": '[includeIf "gitdir:/never/"]\npath = ~/a\n', "~/a": "[sequence]\neditor = ./se\n"}, {}, "se", "included on a condition"),
    ({"~/.gitconfig": "[include]\npath = @W/cfg\n"},                     {}, "cfg",         "a file of settings in the workspace"),
    ({"~/.gitconfig": "[core]\nhooksPath = @W/tools/hooks\n"},           {}, "tools/hooks", "an absolute path"),
    ({"~/.gitconfig": "[core]\nhooksPath = ~/w/tools/hooks\n"},          {}, "tools/hooks", "seen from the home"),
    ({"~/.gitconfig": "[core]\nhooksPath = ../hooks\n"},                 {}, "hooks",       "for a repository inside the workspace"),
    ({"~/.gitconfig": "[core]\nhooksPath = .\n"},                        {}, "pre-commit",  "the folder is the worktree"),
    ({"~/.gitconfig": "[core]\nhooksPath = [h]*\n"},                     {}, "?h]?",        "characters of patterns"),
    ({"~/.gitconfig": "[core]\nhooksPath = .githooks\n"},                {}, ".git/.githooks", "in a bare repository it counts from there"),
    ({"~/.gitconfig": '[alias]\nx = "!./run"\n'},                        {}, "run",         "an alias"),
    ({"~/.gitconfig": '[filter "f"]\nclean = ./f.sh %f\n'},              {}, "f.sh",        "a filter"),
    ({"~/.gitconfig": '[credential "https://x"]\nhelper = "!./c"\n'},    {}, "c",           "a helper for one host"),
    ({"~/.gitconfig": '[trailer "t"]\ncmd = ./t\n'},                     {}, "t",           "a trailer"),
    ({"~/.gitconfig": "[commit]\ntemplate = .msg\n"},                    {}, ".msg",        "a template of messages"),
    ({"~/.gitconfig": "[core]\nattributesFile = .attrs\n"},              {}, ".attrs",      "attributes choose drivers"),
    ({}, {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath", "GIT_CONFIG_VALUE_0": "h"}, "h", "settings in variables"),
    ({}, {"GIT_CONFIG_PARAMETERS": "'core.hookspath'='h h'"},                "h h",         "as `git -c` hands them on"),
    ({}, {"GIT_EXTERNAL_DIFF": "./d"},                                       "d",           "a variable of Git"),
    ({}, {"EDITOR": "vim -u .vimrc.mine"},                                   ".vimrc.mine", "the editor"),
    ({}, {"BASH_ENV": ".env.sh"},                                            ".env.sh",     "what bash reads"),
    ({}, {"NODE_OPTIONS": "--require ./hook.js"},                            "hook.js",     "what Node.js loads"),
    ({}, {"PYTHONPATH": "src:/usr/lib/x"},                                   "src/sitecustomize.py", "what Python loads"),
    ({"~/.hgrc": "[hooks]\ncommit = ./hgc\n"},                           {}, "hgc",         "a hook of Mercurial"),
    ({"~/.hgrc": "[hooks]\ncommit = python:h.py:f\n"},                   {}, "h.py",        "one in Python"),
    ({"~/.npmrc": "script-shell=./sh\n"},                                {}, "sh",          "the shell of npm"),
    ({"~/.ssh/config": "Host x\n  ProxyCommand ./pc %h\n"},              {}, "pc",          "a command of ssh"),
    ({"~/.bashrc": "[ -f .proj ] && . ./.proj\n"},                       {}, ".proj",       "a shell that reads a file where it starts"),
    ({"~/.zshrc": 'source "$PWD/.mine"\n'},                              {}, ".mine",       "the same by its variable"),
    ({"~/.vimrc": "if filereadable('.vl') | so .vl | endif\n"},          {}, ".vl",         "an editor that does"),
    ({"~/.bashrc": "source @W/sh/rc\n"},                                {}, "sh/rc",       "a file of the workspace by its whole path"),
    ({"~/.zshrc": '. "$HOME/w/sh/rc"\n'},                               {}, "sh/rc",       "the same from the home"),
    ({"~/.bashrc.d/x": ". ./p.sh\n"},                                   {}, "p.sh",        "in a folder of such files"),
    ({"~/.ssh/config": "Include other @W/ssh.inc\n"},                   {}, "ssh.inc",     "settings of ssh that lie there"),
    ({}, {"MAKEFILES": "a.mk b.mk"},                                         "b.mk",        "what make reads first"),
    ({}, {"TAR_OPTIONS": "--use-compress-program=./tc"},                     "tc",          "a program of tar"),
    ({"~/.tmux.conf": "source-file -q .tmux.mine\n"},                    {}, ".tmux.mine",  "a multiplexer that does"),
    ({"~/.tmux.conf": "run-shell 'tools/x -a'\n"},                       {}, "tools/x",     "one that runs a program"),
    ({"~/.tmux.conf": "set -g status-right '#(./st)'\n"},                {}, "st",          "a status line that runs something"),
    ({"~/.gitconfig": "[core]\nhooksPath = :(optional).githooks\n"},     {}, ".githooks",   "a path that newer versions of Git take"),
    ({"~/.gitconfig": '[url "ext::./tools/p %S "]\ninsteadOf = foo:\n'}, {}, "tools/p",     "an address that runs a program"),
    ({"~/.gitconfig": '[remote "o"]\nurl = ext::tools/p %S\n'},          {}, "tools/p",     "the same of a remote"),
    ({"~/.gitconfig": "[core]\nsshCommand = ssh -F ssh_config\n"},       {}, "ssh_config",  "settings behind a flag that takes a file"),
    ({}, {"GIT_DIR": "store"},                                               "store/hooks", "another folder of Git"),
    ({}, {"GIT_COMMON_DIR": "store"},                                        "store/config", "another folder of settings"),
    ({"~/x/nvim/init.lua": "dofile('./a.lua')\n"}, {"XDG_CONFIG_HOME": "~/x"}, "a.lua",     "an editor's settings, moved by XDG_CONFIG_HOME"),
    ({"~/x/hg/hgrc": "[hooks]\nx = ./a\n"}, {"XDG_CONFIG_HOME": "~/x"},     "a",           "the same of Mercurial"),
    ({"~/x": "[hooks]\nx = ./a\n"}, {"HGRCPATH": "~/x"},                     "a",           "moved by a variable of its own"),
    ({"~/x": "script-shell=./sh\n"}, {"NPM_CONFIG_USERCONFIG": "~/x"},       "sh",          "the same of npm"),
    ({"~/.hgrc": "%include ~/t\n", "~/t": "[hooks]\nx = ./a\n"},         {}, "a",           "included by Mercurial"),
    ({"~/.ssh/config": "Include c.d/*\n", "~/.ssh/c.d/a": "ProxyCommand ./pc\n"}, {}, "pc", "included by ssh"),
    ({"~/z/.zshrc": "source ./a.zsh\n"}, {"ZDOTDIR": "~/z"},                 "a.zsh",       "a shell's, moved by ZDOTDIR"),
    ({"~/.bashrc": "source ~/.sh/x\n", "~/.sh/x": ". ./inner.sh\n"},    {}, "inner.sh",    "read by what a shell reads"),
    ({"~/.vimrc": "so ~/.vim/x.vim\n", "~/.vim/x.vim": "so .y\n"},      {}, ".y",          "read by what an editor reads"),
    ({"~/.bashrc": "PROMPT_COMMAND='./p; x'\n"},                         {}, "p",           "a variable that only the shell has"),
    ({"~/.bashrc": "PS1='$(./ps) $ '\n"},                                {}, "ps",          "a prompt"),
    ({"~/.profile": 'BASH_ENV="$HOME/w/be"; export BASH_ENV\n'},         {}, "be",          "a file for every shell"),
    ({"~/.config/fish/config.fish": "set -gx EDITOR tools/ed\n"},        {}, "tools/ed",    "the same in fish"),
    ({"~/.bashrc": "trap './t' DEBUG\n"},                                {}, "t",           "before every command"),
    ({"~/.zshrc": "precmd() { [ -x ./.hook ] && ./.hook; }\n"},          {}, ".hook",       "before every prompt"),
    ({"~/.bashrc": 'eval "$(./env)"\n'},                                 {}, "env",         "what a program says"),
    ({"~/.lldbinit": "command script import ./l.py\n"},                  {}, "l.py",        "a debugger"),
    ({"~/.irbrc": "load './i.rb'\n"},                                    {}, "i.rb",        "a prompt of Ruby"),
    ({"~/.Rprofile": "source('x.R')\n"},                                 {}, "x.R",         "R"),
    ({"~/.pythonrc": "exec(open('./p.py').read())\n"},                   {}, "p.py",        "Python"),
    ({"~/.claude/settings.json": '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "$CLAUDE_PROJECT_DIR/scripts/h.sh"}]}]}}'}, {}, "scripts/h.sh", "a hook of another agent"),
    ({"~/.cursor/mcp.json": '{"mcpServers": {"x": {"command": "node", "args": ["./mcp/s.js", "./src"]}}}'}, {}, "mcp/s.js", "a server of another agent"),
    ({"~/.config/ringfence/config.toml": '[mcp.x]\ncommand = "node"\nargs = ["${workspaceFolder}/mcp/s.js"]\n'}, {}, "mcp/s.js", "a tool server"),
    ({"~/.codex/config.toml": 'notify = ["python3", "tools/n.py"]\n'},   {}, "tools/n.py",  "a program that is told"),
    ({"~/.config/starship.toml": '[custom.x]\ncommand = "./sx"\n'},      {}, "sx",          "a part of a prompt"),
    ({"~/.config/mise/config.toml": '[hooks]\nenter = "./me"\n'},        {}, "me",          "a hook for a change of the folder"),
    ({"~/.cargo/config.toml": '[build]\nrustc-wrapper = "@W/rw"\n'},     {}, "rw",          "a wrapper around a compiler"),
    ({"~/.config/Code/User/settings.json": '{\n// mine\n"git.path": "${workspaceFolder}/g",\n}'}, {}, "g", "a program of an editor"),
    ({}, {"P4CONFIG": ".p4config"},                                          ".p4config",   "settings of Perforce, in each folder"),
    ({}, {"GOFLAGS": "-toolexec=./te"},                                      "te",          "what Go starts for each step"),
]
NONE = [
    ({"~/.gitconfig": "[user]\nname = a/b\n[core]\nhooksPath = ~/hooks\nexcludesFile = ig\n[alias]\nst = status\n"}, {}, "nothing leads inside"),
    ({"~/.gitconfig": "[credential]\nhelper = store --file=/x/y\n[core]\nfsmonitor = true\npager = less -R\n"}, {}, "programs on PATH"),
    ({"~/.gitconfig": "[core]\nhooksPath = .git\n"},                     {}, "would stop every commit; `.git` is guarded by itself"),
    ({"~/.bashrc": '. "$HOME/.cargo/env"\nsource ~/.x\n# . ./y\nalias a="source b/c"\nsource .venv/bin/activate\n'}, {}, "not from the current folder, or knowingly"),
    ({"~/.ssh/config": "Include config.d/* ~/.orbstack/ssh/config\n", "~/.bashrc": "source /etc/bash_completion\n. ~/w/.venv/bin/activate\n"}, {}, "includes elsewhere"),
    ({"~/.tmux.conf": 'bind C-p run-shell "tmux show-buffer | xclip"\nset -g status-right "#(uptime)"\n'}, {}, "programs of a multiplexer on PATH"),
    ({"~/.bashrc": 'serve() { python3 -m http.server -d ./dist; }\nmk() { mkdir -p ./build/$1; cp a/b ./out; }\ncase $TERM in x*/y) ;; esac\n. "$NVM_DIR/nvm.sh"\n'}, {}, "arguments of what a shell runs"),
    ({"~/.bashrc": 'export KUBECONFIG="$HOME/.kube/config"\nPYTHONPATH="$HOME/lib:$PYTHONPATH"\nENV=dev run x\nexport EDITOR=vim PAGER="less -R"\nexport CC="gcc -I./include"\n'}, {}, "variables that lead elsewhere"),
    ({"~/.cursor/mcp.json": '{"mcpServers": {"x": {"command": "npx", "args": ["-y", "server-filesystem", "./src"]}}}'}, {}, "folders for a server"),
    ({"~/.claude/settings.json": '{"permissions": {"allow": ["Bash(./gradlew test:*)", "Edit(./docs/**)"], "additionalDirectories": ["../x"]}}'}, {}, "rules of another agent"),
    ({"~/.config/Code/User/settings.json": '{"eslint.nodePath": "./node_modules", "python.defaultInterpreterPath": "${workspaceFolder}/.venv/bin/python"}'}, {}, "tools that the user installs there"),
    ({"~/.config/ringfence/config.toml": '[[rule]]\nverdict = "allow"\nrun = ["./gradlew", "test"]\n'}, {}, "commands in rules"),
    ({"~/.codex/config.toml": "broken [", "~/.claude.json": "[" * 100_000},  {}, "what nobody can read"),
    ({}, {"PATH": ".:node_modules/.bin", "EDITOR": "vim", "PAGER": "less", "SHELL": "/bin/bash"}, "PATH is another matter"),
]
# fmt: on


@dataclass(frozen=True, slots=True)
class Place:
    home: Path

    @property
    def work(self) -> Path:
        return self.home / "w"

    def fill(self, files: dict[str, str], environ: dict[str, str]) -> dict[str, str]:
        for name, text in files.items():
            path = self.home / name.removeprefix("~/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("@W", str(self.work)))
        return {name: value.replace("~", str(self.home)) for name, value in environ.items()}


@pytest.fixture
def place() -> Iterator[Place]:
    home = Path(os.path.realpath(tempfile.mkdtemp(prefix="personal-", dir="/var/tmp")))
    home.chmod(0o755)
    (home / "w").mkdir()
    yield Place(home)
    shutil.rmtree(home)


@pytest.mark.threat("T115")
@pytest.mark.parametrize(("files", "environ", "expected", "why"), PLACES, ids=[row[3] for row in PLACES])
def test_settings_that_lead_inside_are_found(
    place: Place, files: dict[str, str], environ: dict[str, str], expected: str, why: str
) -> None:
    given = place.fill(files, environ)
    assert expected in personal_patterns(str(place.work), str(place.home), given), why


@pytest.mark.threat("T115")
@pytest.mark.parametrize(
    ("link", "target"),
    [(".gitconfig", "dot/gitconfig"), (".config/git", "dot/git"), (".config/git/config", "g"), (".ssh/config", "s"),
     (".bashrc", "rc"), (".tool", "tool"), (".config/nvim", "nvim")],
)  # fmt: skip
def test_settings_that_are_links_into_the_workspace_are_found(place: Place, link: str, target: str) -> None:
    """A repository of dotfiles; what a link leads to need not be there yet."""
    path = place.home / link
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(place.work / target)
    (place.home / "w2").symlink_to(place.work / "build")  # no settings
    found = personal_patterns(str(place.work), str(place.home), {})
    assert target in found
    assert "build" not in found


@pytest.mark.parametrize(("files", "environ", "why"), NONE, ids=[row[2] for row in NONE])
def test_settings_that_do_not(place: Place, files: dict[str, str], environ: dict[str, str], why: str) -> None:
    given = place.fill(files, environ)
    nobody = set(personal_patterns(str(place.work), "/nonexistent", {}))  # what this machine's own files say
    assert set(personal_patterns(str(place.work), str(place.home), given)) <= nobody, why


# ---- what commands and patches may do then

# fmt: off
PLANTED = [
    ("[core]\nhooksPath = .githooks\n",     ".githooks/pre-commit", "git commit -q --allow-empty -m x", "a hook"),
    ("[core]\nhooksPath = @W/my hooks\n",   "my hooks/pre-commit",  "git commit -q --allow-empty -m x", "a hook by an absolute path"),
    ("[core]\nhooksPath = @W\n",            "pre-commit",           "git commit -q --allow-empty -m x", "a hook in the worktree itself"),
    ("[core]\nfsmonitor = ./mon\n",         "mon",                  "git status",                       "a monitor"),
    ("[diff]\nexternal = tools/d\n",        "tools/d",              "git diff HEAD",                    "a driver of diffs"),
    ("[core]\neditor = sh ed\n",            "ed",                   "git commit -q --allow-empty",      "an editor"),
    ("[include]\npath = @W/cfg\n",          "cfg",                  "git run",                          "further settings"),
    ("[init]\ntemplateDir = @W/tpl\n",      "tpl/hooks/post-checkout", "git clone -q . ../clone",       "a template of repositories"),
]
# fmt: on


@pytest.mark.threat("T115")
@pytest.mark.parametrize(("settings", "path", "trigger", "why"), PLANTED, ids=[row[3] for row in PLANTED])
def test_a_command_plants_nothing_that_the_user_runs(
    place: Place, settings: str, path: str, trigger: str, why: str
) -> None:
    environ = {"HOME": str(place.home), "PATH": PATH, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b.c"}
    environ |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b.c"}
    for line in ("git init -q .", "echo 1 > f", "git add f", "git commit -qm one", "echo 2 > f"):
        subprocess.run(line, shell=True, cwd=place.work, env=environ, check=True)
    place.fill({"~/.gitconfig": settings}, {})
    said = f"#!/bin/sh\ntouch {place.home}/RAN" if path != "cfg" else f"[alias]\nrun = !touch {place.home}/RAN"
    script = f"mkdir -p '{os.path.dirname(path) or '.'}'\ncat > '{path}' <<'END'\n{said}\nEND\nchmod 755 '{path}'\n"
    (place.work / "plant.sh").write_text(script)
    unguarded = subprocess.run(
        f"bash plant.sh && {trigger}", shell=True, cwd=place.work, env=environ, capture_output=True
    )
    assert (place.home / "RAN").exists(), (unguarded, "otherwise this proves nothing")
    (place.home / "RAN").unlink()
    subprocess.run(
        ["git", "clean", "-fdqe", "plant.sh"],
        cwd=place.work,
        env={**environ, "GIT_CONFIG_GLOBAL": "/dev/null"},
        check=True,
    )
    shutil.rmtree(place.home / "clone", ignore_errors=True)
    words = ["exec", "--mode", "trust-project", "--unattended", "bash plant.sh"]
    done = forked_agent.run([AGENT, *words], cwd=place.work, env=environ, capture_output=True, text=True, check=False)
    assert not (place.work / path).exists(), done
    assert "set aside" in done.stderr
    subprocess.run(trigger, shell=True, cwd=place.work, env=environ, capture_output=True, check=False)
    assert not (place.home / "RAN").exists(), why


@pytest.mark.threat("T115")
def test_what_is_there_stays_as_it_is_and_patches_are_warned_of(place: Place) -> None:
    environ = {"HOME": str(place.home), "PATH": PATH}
    subprocess.run("git init -q . && mkdir .githooks && echo old > .githooks/pre-push", shell=True, cwd=place.work, env=environ, check=True)  # fmt: skip
    place.fill({"~/.gitconfig": "[core]\nhooksPath = .githooks\n"}, {})
    words = [AGENT, "exec", "--mode", "trust-project", "--unattended", "bash -c 'echo new > .githooks/pre-push'"]
    done = forked_agent.run(words, cwd=place.work, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert (place.work / ".githooks/pre-push").read_text() == "old\n"
    patch = place.home / "p.patch"
    patch.write_text(
        "diff --git a/.githooks/pre-commit b/.githooks/pre-commit\nnew file mode 100755\n--- /dev/null\n"
        "+++ b/.githooks/pre-commit\n@@ -0,0 +1,1 @@\n+#!/bin/sh\n"
    )
    done = forked_agent.run([AGENT, "apply", "--yes", str(patch)], cwd=place.work, env=environ, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode != 0
    assert "it is an auto-run file" in done.stdout + done.stderr
    assert not (place.work / ".githooks/pre-commit").exists()


@pytest.mark.threat("T115")
@pytest.mark.parametrize("where", ["config", "config.worktree", "more"])
def test_programs_that_a_repository_names_are_kept(place: Place, where: str) -> None:
    """The settings of a repository are locked in any case. This test is about the programs that the settings name."""
    environ = {"HOME": str(place.home), "PATH": PATH}
    for line in ("git init -q .", "git config extensions.worktreeConfig true", "mkdir tools", "echo ok > tools/there"):
        subprocess.run(line, shell=True, cwd=place.work, env=environ, check=True)
    named = '[core]\n\tfsmonitor = ./mon\n[filter "x"]\n\tclean = sh tools/there %f\n[alias]\n\tgo = !tools/go\n'
    if where == "more":
        (place.work / ".git/more").write_text(named)
        named = "[include]\n\tpath = more\n"
    with (place.work / ".git" / where.replace("more", "config")).open("a") as file:
        file.write(named)
    script = "for each in mon tools/there tools/go; do echo planted > $each; done"
    (place.work / "plant.sh").write_text(script)
    words = [AGENT, "exec", "--mode", "trust-project", "--unattended", "bash plant.sh"]
    done = forked_agent.run(words, cwd=place.work, env=environ, capture_output=True, text=True, check=False)
    assert "set aside" in done.stderr
    left = {name: (place.work / name).exists() for name in ("mon", "tools/go")}
    assert left == {"mon": False, "tools/go": False}
    assert (place.work / "tools/there").read_text() == "ok\n"
