"""Front ends: the ways in which a user or a program drives an agent.

`tui/` is the terminal application, `plain/` the line-based one, `jsonl/` the JSON protocol, `exec/` single commands
without a model, `ci/` the job runner, `batch/` many tasks, `acp/` editors, `slash/` commands typed in a conversation.
May import `agent` and everything below it, never `cli`, whose modules `batch/` starts only as programs. Start reading
at `launch.py`, which chooses the front end.
"""
