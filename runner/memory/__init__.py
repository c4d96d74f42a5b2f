"""Notes that last across sessions: files in the state folder, which only the user's own word changes.

`store.py` keeps the files, `index.py` makes the texts for the model, `session_notes.py` is the part of one session.
May import: providers and below it `config`, `state` and `text`, and `policy` and `sandbox.inside`.
"""
