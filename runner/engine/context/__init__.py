"""The context that a model is given: system prompt, environment, instructions, and how many tokens they take.

Start reading at `context.py`.
"""
