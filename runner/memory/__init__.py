"""Notes that last across sessions: files in the state folder, which only the user's own word changes.

`store.py` keeps the files, `index.py` makes the texts for the model, `session_notes.py` is the part of one session.
May import `config` and the packages below it, `policy` and `sandbox`. Start reading at `session_notes.py`.
"""
