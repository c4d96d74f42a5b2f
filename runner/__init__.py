"""The program around the policy engine and the sandbox: command line, agent, sessions, audit log.

The packages in import order, highest first: `cli`, `frontends`, `agent`, `loop`, `engine`, `sessions`, `approval`,
`doctor`, `audit`, `changes`, `gate`, `facts`, `providers`, `config`, `stderr`, `secrets`, `state`, `text`, `events`,
`messages`, `problems`. A module imports only what stands to the right of its package. Start reading at `loop.py`.
"""
