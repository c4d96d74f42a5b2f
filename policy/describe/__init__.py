"""Text for people, rendered from structure: summaries, reasons and consequences of an action.

No code reads these texts. May import `toml` and `model`. Start reading at `summary.py`.
"""
