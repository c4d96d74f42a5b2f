"""`make flow`: attacks by injected text and benign tasks, run again through the real policy. No model is needed.

Nothing here is collected by pytest. Start reading at `run.py`, then `gate.py`.
"""
