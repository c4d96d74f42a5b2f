"""`agent acp`: sessions for editors, by the Agent Client Protocol (ACP), version 1, on standard input and output.

`server.py` answers the methods, `session.py` runs one session, `questions.py` lets the editor answer questions.
May import `launch`, `jsonl/`, `slash/` and everything below them, and the library `acp`, which no other folder imports.
Start reading at `server.py`; `docs/guide/editors.md` describes the use.
"""
