"""Information flow: where the text of a conversation comes from, and what may leave the machine or be trusted later.

May import `decide` and what is below it. Does not read or write files: the runner keeps the state of a session.
Start reading at `state.py`, then `guard.py`.
"""
