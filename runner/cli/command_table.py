"""The commands of `agent`, each with the module that has it.

A module is imported only when its command is used, because the modules of all commands take 0.2 s to import. The help
page and the completion of `agent` need only the names and the first paragraphs of the help, which are in the table.
"""

CODES = (
    "**Exit codes**  0 done · 1 failed · 2 usage or configuration · 3 policy denied something · "
    "4 sandbox unavailable · 5 a limit was reached · 130 interrupted."
)
EPILOG = f"{CODES} `agent exec` passes the command's own status through."

# name: (module of `runner/cli` and attribute, epilog of the help page, first paragraph of the help page in Markdown)
#
# The attribute is the function of a command, or the `typer.Typer` of a group of commands, which has no epilog. The
# order is that of the help page of `agent`: single commands before groups.
# fmt: off
COMMANDS: dict[str, tuple[str, str, str]] = {
    "run":       ("run:run", CODES,
                  "Let a model work on one prompt. The policy decides on every action of the model."),
    "ci":        ("run:ci", CODES,
                  "Let a model work in a CI job, on a prompt that may be hostile."),
    "repo":      ("research:repo", CODES,
                  "Answer a question about a repository of others, in a temporary workspace."),
    "web":       ("research:web", CODES,
                  "Answer a question by reading the web, in a temporary workspace."),
    "acp":       ("acp:acp", CODES,
                  "Serve an editor, by the Agent Client Protocol (ACP), version 1, on standard input and output."),
    "exec":      ("gate:exec_help", EPILOG,
                  "Run one command in the sandbox if the policy allows it, without a model."),
    "why":       ("gate:why_help", "",
                  "Explain whether a command would be allowed, and why. Nothing is run."),
    "init":      ("config:init", "",
                  "Write a configuration file with all keys as comments: `.ringfence/config.toml` of this "
                  "project, or your own."),
    "undo":      ("undo:undo", CODES,
                  "Restore files to their state before the last action of a model, or the last N actions."),
    "apply":     ("apply:apply", CODES,
                  "Show the changes of a patch, ask, and apply either all of them or none."),
    "approve":   ("approve:approve", CODES,
                  "Answer a question of `agent mcp serve`, whose client shows no questions."),
    "attach":    ("hosted:attach", "",
                  "Open a session that goes on when this terminal is closed, or attach to one."),
    "ps":        ("hosted:ps", "",
                  "List the running sessions that outlive their terminal, the last active one first."),
    "logs":      ("hosted:logs", "",
                  "Print what has happened in a session. A session that does not run is printed from its file."),
    "stop":      ("hosted:stop", "",
                  "End running sessions with their commands. Each stays stored: `agent attach ID` continues it."),
    "detach":    ("hosted:detach", "",
                  "Drop every client of a session. The session goes on."),
    "doctor":    ("doctor:doctor", "",
                  "Check this machine: the kernel, every sandbox (with a test of its isolation), programs, "
                  "folders, the keyring, the model and the sources of keys. Never shows a key."),
    "demo":      ("doctor:demo", "",
                  "Show ringfence at work: a scripted model works on a small repository and tries forbidden "
                  "actions."),
    "sandbox":   ("sandbox:sandbox_app", "",
                  "Show the rights of a command in the sandbox before it runs, and the files kept between "
                  "commands."),
    "batch":     ("batch:batch_app", "",
                  "Work on a list of prompts, each on its own copy of the workspace."),
    "policy":    ("policy:policy_app", "",
                  "Show and test the policy: the permission matrix, tables of expected verdicts, verdicts on many "
                  "scripts."),
    "profile":   ("profile:profile_app", "",
                  "Learn the rights that a command needs, and write them as a rule."),
    "config":    ("config:config_app", "",
                  "Show, check and change the configuration."),
    "agents":    ("agents:agents_app", "",
                  "List and show the sub-agents that the model may start."),
    "bundle":    ("bundle:bundle_app", "",
                  "Add, list, show, update and remove bundles."),
    "mcp":       ("mcp:mcp_app", "",
                  "Configure and try tool servers, which offer tools to the model by the Model Context Protocol "
                  "(MCP)."),
    "hooks":     ("hooks:hooks_app", "",
                  "List, try and import hooks: programs that are asked at events of a session."),
    "audit":     ("audit:audit_app", "",
                  "List decisions, newest first: tier, verdict, action, reason, rule and outcome."),
    "auth":      ("auth:auth_app", "",
                  "Store the API keys of providers in the keyring of the system, and show which key is used."),
    "trust":     ("trust:trust_app", "",
                  "Show the files of this repository that are used only if you trust them, and ask whether you "
                  "do."),
    "grants":    ("grants:grants_app", "",
                  "List, show, add and remove grants: your remembered answers."),
    "guard":     ("guard:guard_app", "",
                  "Let another agent ask this gate, and run its commands in the sandbox."),
    "jobs":      ("jobs:jobs_app", "",
                  "Let a model work on a schedule: once, in intervals, or at the times of a cron expression."),
    "memory":    ("memory:memory_app", "",
                  "List, show, search, add, change and remove notes that last across sessions."),
    "sessions":  ("sessions:sessions_app", "",
                  "List, show, export and remove stored conversations."),
    "processes": ("processes:processes_app", "",
                  "List, read and stop the background processes of your open sessions."),
    "serve":     ("serve:serve_app", "",
                  "Run the resident process: short commands answer at once, and sessions outlive their terminal."),
    "ports":     ("processes:ports_app", "",
                  "List the ports on which background processes listen, and open one on this machine."),
}
# fmt: on
