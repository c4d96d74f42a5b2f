"""Trust in repositories: what their files would change or run, and the user's decision about exactly that content.

May import `config`, `state` and everything below them. Start reading at `inventory.py`, then `evaluate.py`.
"""
