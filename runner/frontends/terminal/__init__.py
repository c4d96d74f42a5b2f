"""The parts that the plain and the full-screen front end share: detection of the terminal, its input, the clipboard.

May import `messages`, and nothing from the other front ends. Start reading at `probe.py`.
"""
