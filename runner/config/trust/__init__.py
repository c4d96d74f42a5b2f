"""Trust in repositories: what their files would change or run, and the user's decision about exactly that content.

May import `config`, its `agentfiles`, `state` and everything below them. Start reading at `evaluate.py`.
"""
