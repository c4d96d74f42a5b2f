"""The program around the policy engine and the sandbox: command line, agent, sessions, audit log.

The packages in import order, highest first: `cli`, `api`, `frontends`, `agent`, `loop`, `lsp`, `mcp`, `engine`,
`sessions`, `approval`, `doctor`, `audit`, `changes`, `gate`, `bundles`, `web`, `documents`, `facts`, `providers`,
`memory`, `tasks`, `flow`, `config`, `stderr`, `ending`, `resident`, `secrets`, `state`, `text`, `events`,
`event_values`, `messages`, `problems`. Each may import only those to its right. Start reading at `loop.py`.
"""

VERSION = "0.1.0"  # a constant: `agent --version` must not read package metadata to print one line
