"""Command lines of many kinds, from which laws choose."""

COMMANDS = (
    "ls", "ls -la docs", "cat notes.txt", "cat $x", "npm test", "npm run build", "npm run $x", "git push", "git commit -m x",
    "git -C sub push", "git log", "rm -rf .", "rm -rf docs", "rm docs/a.md", "rm $x", "touch docs/x", "touch src/x", "echo hi > docs/x",
    "echo hi > $x", "echo hi > ~/out/x", "sed -i s/a/b/ docs/a.md", "cp notes.txt docs", "mv docs src", "frobnicate a", "frobnicate $x",
    "X=1 npm test", "CI=1 npm test", "PATH=./bin npm test", "sudo ls", "curl https://x.org/a", "curl $x", "cat ~/.ssh/id_rsa", "cat /var/log/syslog",
    "timeout 5 npm test", "xargs npm run", "find . -exec npm test \\;", "find . -delete", "bash -c 'npm test'", "bash -c \"$x\"", "eval npm test",
    "eval \"$x\"", "cd docs", "cd /", "cd $x", "x=build", "x=docs/a.md", "export X=1", "npm() { rm -rf docs; }", "alias npm=rm", "coproc ls",
    "python3 -c 'print(1)'", "python3 src/x.py", "./bin/tool x", "tool x", "echo $(git push)", "echo git push", "echo git push | sh", "tee docs/x",
    "if ls; then npm test; fi", "for i in build x; do npm run $i; done", "(npm test)", "! npm test", "unset PATH", "trap 'git push' EXIT", "set -e",
    "exec npm test", "[ -f x ]", "[[ -f $x ]]", "echo ${x:-$(git push)}", "cat <<E\n$(npm test)\nE", "true", "f() { npm test; }; f", "break",
)  # fmt: skip
