"""The context that a model is given: system prompt, environment, instructions, and how many tokens they take.

May import `run_limits.py` and everything below `engine`. Start reading at `context.py`.
"""
