"""Sessions that outlive their terminal: JSON mode as a process of its own behind a Unix socket, with many clients.

May import `jsonl/`, `plain/`, `launch.py` and everything below them. `host.py` is the process of one session,
`clients.py` and `replay.py` are its parts; `address.py`, `start.py`, `connection.py` and `attach.py` belong to the
commands that use it. Start reading at `host.py`.
"""
