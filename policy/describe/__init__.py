"""Text for people, rendered from structure: summaries, reasons and consequences of an action.

No decision depends on these texts. The only code that looks into a phrase joins it with others, by its first character
(an article, a backtick) and its punctuation. May import `toml` and `model`. Start reading at `summary.py`.
"""
