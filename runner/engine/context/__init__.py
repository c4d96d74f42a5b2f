"""The context that a model receives: system prompt, environment, instructions, and the number of their tokens.

May import `run_limits.py` and everything below `engine`. Start reading at `context.py`.
"""
