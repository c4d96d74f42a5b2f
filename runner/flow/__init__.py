"""Information flow in a session: the sources of the texts in its conversation, and the files written meanwhile.

`policy/flow/` decides; this package keeps what the decisions rest on. May import `config`, `state`, `text`, `events`
and what is below them. Start reading at `session_flow.py`.
"""
