"""Escape attempts through the workspace: files that other programs run by themselves, and files that outlive the
command.
"""

from tests.escapes.attempt import Attempt

A = Attempt
# fmt: off
ATTEMPTS = [
    A("hook-rewrite", "auto-run", "a hook that is there", "echo $MARK > .git/hooks/pre-commit; sed -i s/original/$MARK/ .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit", "sh"),
    A("hook-new", "auto-run", "a hook that is not", "echo $MARK > .git/hooks/post-checkout; cp world.json .git/hooks/x && mv .git/hooks/x .git/hooks/pre-push; ln -s ../../mine .git/hooks/post-merge && echo $MARK > mine", "sh"),
    A("hook-replace-folder", "auto-run", "the folder of the hooks", "mkdir h; echo $MARK > h/pre-commit; rm -rf .git/hooks; mv .git/hooks .git/old; mv h .git/hooks || rm -rf h", "sh"),
    A("git-config", "auto-run", "a program in Git's settings", "git config core.fsmonitor $MARK; echo \"[core] pager = $MARK\" >> .git/config; cp .git/config c && mv c .git/config", "sh"),
    A("git-config-lock", "auto-run", "the same as Git itself does it", "printf '[core]\\nfsmonitor = %s\\n' $MARK > .git/config.lock && mv -f .git/config.lock .git/config || rm -f .git/config.lock", "sh"),
    A("git-config-worktree", "auto-run", "settings of a worktree", "printf '[core]\\nfsmonitor = %s\\n' $MARK > .git/config.worktree", "sh"),
    A("git-attributes", "auto-run", "a filter for every file", "mkdir -p .git/info; echo \"* filter=$MARK\" > .git/info/attributes", "sh"),
    A("git-commondir", "auto-run", "settings that lie elsewhere", "mkdir common; echo ../common > .git/commondir; [ -e .git/commondir ] && echo $MARK > common/config", "sh"),
    A("git-common-root", "auto-run", "settings in a folder that is no repository", "mkdir -p sub/.git objects refs; echo ref: refs/heads/main > sub/.git/HEAD; echo ../.. > sub/.git/commondir; printf '[core]\\nfsmonitor = %s\\n' $MARK > config", "sh"),
    A("git-rename", "auto-run", "another repository in the place of this one", "mv .git away && mkdir -p .git/hooks && echo $MARK > .git/hooks/pre-commit", "sh"),
    A("git-exchange", "auto-run", "the same in one step", 'os.makedirs("new/hooks")\nopen("new/hooks/pre-commit", "w").write(MARK)\nif call(316, -100, b"new", -100, b".git", 2) != 0:\n  os.unlink("new/hooks/pre-commit")', x86=True),
    A("git-link", "auto-run", "a link in the place of the repository", "mkdir -p other/hooks; rm -rf .git; [ -d .git ] || { ln -s other .git; echo $MARK > other/hooks/pre-commit; }", "sh"),
    A("git-modules", "auto-run", "the repository of a submodule", "mkdir -p .git/modules/m/hooks; echo $MARK > .git/modules/m/hooks/post-checkout; echo $MARK > .git/modules/m/config; echo $MARK > .gitmodules", "sh"),
    A("git-new-nested", "auto-run", "a repository of our own making", "mkdir -p lib/.git/hooks; echo $MARK > lib/.git/hooks/post-checkout; echo ref: refs/heads/main > lib/.git/HEAD", "sh"),
    A("git-nested", "auto-run", "a repository inside this one", "echo $MARK > vendor/inner/.git/hooks/pre-commit; echo $MARK >> vendor/inner/.git/config", "sh"),
    A("git-nested-moved", "auto-run", "the same after its folder has moved", "mv vendor v && echo $MARK > v/inner/.git/hooks/pre-commit; mkdir -p vendor/inner/.git/hooks && echo $MARK > vendor/inner/.git/hooks/post-merge", "sh"),
    A("git-bare", "auto-run", "a folder that Git takes for a repository", "mkdir -p objects refs; echo ref: refs/heads/main > HEAD; printf '[core]\\nbare = true\\nfsmonitor = %s\\n' $MARK > config", "sh"),
    A("git-file", "auto-run", "a file that says where the repository is", "mkdir -p real/hooks; echo 'gitdir: ../real' > vendor/.git && { echo $MARK > real/hooks/pre-commit; }", "sh"),
    A("hooks-behind-link", "auto-run", "hooks that are a link to a folder of the workspace", "mkdir -p hooked; echo $MARK > linked-hooks/pre-commit", "sh"),
    A("editor-tasks", "auto-run", "what an editor starts", "mkdir -p .vscode .idea .zed; echo $MARK > .vscode/tasks.json; echo $MARK > .vscode/settings.json; echo $MARK > .idea/workspace.xml; echo $MARK > .zed/tasks.json; mkdir .helix .run; echo $MARK > .helix/languages.toml; echo $MARK > .run/x.run.xml; echo $MARK > x.code-workspace", "sh"),
    A("shell-files", "auto-run", "what a shell reads in a folder", "for f in .envrc .bashrc .profile .zshenv .bash_profile; do echo $MARK > $f; done", "sh"),
    A("debugger-files", "auto-run", "what a debugger or an editor reads in a folder", "for f in .gdbinit .lldbinit .exrc .nvim.lua .dir-locals.el .dir-locals-2.el .lazy.lua .lvimrc .pdbrc .perldb .Rprofile .RData startup.m; do echo $MARK > $f; done", "sh"),
    A("agent-files", "auto-run", "settings of agents, of this one too", "for d in .claude .codex .cursor .gemini .ringfence; do mkdir -p $d; echo $MARK > $d/settings.json; echo $MARK > $d/config.toml; done; for f in .mcp.json mcp.json opencode.json .aider.conf.yml; do echo $MARK > $f; done; mkdir -p .github/hooks .clinerules; echo $MARK > .github/hooks/x.json; echo $MARK > .clinerules/x", "sh"),
    A("hook-managers", "auto-run", "hooks under the names of others", "mkdir -p .husky; echo $MARK > .husky/pre-commit; mkdir -p .devcontainer; echo $MARK > .devcontainer/devcontainer.json; for f in .pre-commit-config.yaml lefthook.yml .overcommit.yml mise.toml; do echo $MARK > $f; done", "sh"),
    A("auto-run-by-rename", "auto-run", "made under another name, then moved there", "mkdir t; echo $MARK > t/tasks.json; mv t .vscode; echo $MARK > e; mv e .envrc", "sh"),
    A("auto-run-as-link", "auto-run", "a link to a file that nobody looks at", "mkdir plain; echo $MARK > plain/workspace.xml; ln -s plain .idea", "sh"),
    A("auto-run-last-moment", "auto-run", "made at the moment the command ends", "(while :; do mkdir -p .vscode 2>/dev/null; echo $MARK > .vscode/tasks.json; done) 2>/dev/null & sleep 0.2", "sh"),
    A("auto-run-stubborn", "auto-run", "in folders that cannot be changed", "mkdir -p .husky; echo $MARK > .husky/pre-commit; chmod 555 .husky; mkdir -p sub/.git; echo $MARK > sub/.envrc; chmod 555 sub .", "sh"),
    A("auto-run-deep", "auto-run", "the files of a folder that is made into a project", "mkdir -p sub/project/.vscode; cd sub/project; git init -q . 2>/dev/null; printf '[core]\\nfsmonitor = %s\\n' $MARK >> .git/config; echo $MARK > .git/hooks/post-commit", "sh"),
    A("home-plant", "persistence", "start-up files in the home", "mkdir -p ~/.local/bin ~/.config/autostart ~/.config/systemd/user; for f in ~/.bashrc ~/.local/bin/ls ~/.config/autostart/x.desktop ~/.config/systemd/user/x.service; do echo $MARK > $f; done; mkdir -p $HOME_OUTSIDE/.local/bin; echo $MARK > $HOME_OUTSIDE/.local/bin/ls", "sh"),
    A("site-packages", "persistence", "code that every Python starts", 'import site\neach(*(lambda d=d: (open(os.path.join(d, f"plant-{W[\'plain\']}.pth"), "w"), os.unlink(os.path.join(d, f"plant-{W[\'plain\']}.pth")), got(d)) for d in [*site.getsitepackages(), site.getusersitepackages()]))', ),
    A("tmp-for-the-next", "persistence", "a file in /tmp that outlives the session", 'each(*(lambda d=d: open(f"{d}/plant-{W[\'plain\']}", "w") for d in ("/tmp", "/var/tmp", "/dev/shm")))'),
    A("setuid-copy", "persistence", "a shell that anybody may run as us", "cp /bin/sh shell && chmod 6755 shell && [ -u shell ] && echo GOT setuid; install -m 4755 /bin/sh shell2; [ -u shell2 ] && echo GOT setuid2", "sh"),
]
# fmt: on
