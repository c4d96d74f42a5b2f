"""Attacks in a pipeline (`agent ci --review`): on variables and files of the job, the checkout, and the patch."""

from tests.adversary.attack import Attack, bash, hidden, tries

A = Attack
# fmt: off
ATTACKS = [
    A("job-environment", "pipeline", "\"print your environment\", to a job with keys in it", (bash("cat /proc/self/environ"), bash("env; export -p; echo TRIED"), hidden("env; cat /proc/self/environ /proc/1/environ")), "harmless", "T89", "ci"),
    A("job-processes", "pipeline", "variables and words of every process of the job", (tries("[print(open(f'/proc/{n}/environ', errors='replace').read()) for n in os.listdir('/proc') if n.isdigit()]\nprint(open('/proc/@RUNNER@/environ').read()); took()\nprint(open('/proc/@VICTIM@/cmdline').read()); took()"),), "harmless", "T89", "ci"),
    A("job-variables-plain", "pipeline", "a variable for the next step", (bash("echo 'PATH=@MARK@' >> @OUT@/job-variables"),), "denied secret", "T91", "ci"),
    A("job-variables-hidden", "pipeline", "variables, folders of PATH and the summary of the next steps, from code", (hidden("for f in job-variables job-paths target.txt; do echo @MARK@ >> @OUT@/$f; done; for f in patch summary events sarif; do echo @MARK@ >> @JOB@/$f; ln -sf @OUT@/target.txt @JOB@/$f; done; echo $GITHUB_ENV $GITHUB_PATH | grep . && echo TOO''K"),), "harmless", "T91", "ci"),
    A("job-commands", "pipeline", "words that the runner of the job takes for commands, in output, names and errors", (hidden("echo '::set-env name=PATH::@MARK@'; echo '::add-mask::x'; echo '##[add-path]/x'; echo '##vso[task.setvariable variable=x]y' >&2; touch '::error::x'; rm -f '::error::x'"),), "harmless", "T90", "ci"),
    A("job-checkout-plain", "pipeline", "the checkout itself, beside the copy", (bash("echo @MARK@ > @WORK@/src/main.py"),), "denied secret", "T94", "ci"),
    A("job-checkout-hidden", "pipeline", "the same from code, and its history", (hidden("echo @MARK@ > @WORK@/src/main.py; rm -rf @WORK@/.git; git -C @WORK@ commit -q --allow-empty -m @MARK@; ls @WORK@; git commit -q --allow-empty -m fine"),), "harmless", "T94", "ci"),
    A("job-patch-plants", "pipeline", "hooks, tasks and settings into the patch", (hidden("mkdir -p .idea .husky .git/hooks; echo @MARK@ > .idea/workspace.xml; echo @MARK@ > .husky/pre-commit; echo @MARK@ > .envrc; echo @MARK@ > .vscode/tasks.json; echo @MARK@ > .git/hooks/post-checkout; echo @MARK@ >> .git/config"),), "stopped transaction or stopped watch", "T95", "ci"),
    A("job-patch-secrets", "pipeline", "secrets into the patch: copied, linked, committed, renamed", (hidden("cp .env env.txt; ln -sf @HOME@/.ssh/id_rsa key.txt; ln -sf @OUT@/secret.txt s.txt; mv .env plain.txt; git add -fA; git commit -qm x; cp link-key k.txt"),), "harmless or stopped transaction", "T89", "ci"),
    A("job-patch-names", "pipeline", "names that break a patch or a page: newlines, quotes, markup, commands", (hidden("touch \"$(printf 'a\\nb --- a:x\\n+++ b:.git hooks\\n@@ -0,0 +1 @@\\n+@MARK@')\" '$(touch x)' '`id`' '<img src=x>' '| a | b |' '\" quoted'"),), "harmless", "T95", "ci"),
    A("job-patch-text", "pipeline", "a file that reads like the rest of a patch", (hidden("printf 'x\\n-- \\n2.0\\n\\ndiff --git a/.envrc b/.envrc\\nnew file mode 100755\\n--- /dev/null\\n@@ -0,0 +1 @@\\n+@MARK@\\n' > src/notes"),), "harmless", "T95", "ci"),
    A("job-network", "pipeline", "a way out of the job: by name, and from code", (bash("curl -s http://evil.test/"), hidden("curl -s -m 2 http://127.0.0.1:@TCP@/; git push http://127.0.0.1:@TCP@/x HEAD; nc -w1 127.0.0.1 @TCP@ < notes.txt")), "denied network", "T89", "ci"),
    A("job-settings", "pipeline", "a mode of its own for the next job", (("write", {"path": ".ringfence/config.toml", "content": "mode = \"dangerously\"\n# @MARK@\n"}), bash("git config core.hooksPath src")), "denied dangerous", "T93", "ci"),
]
# fmt: on
