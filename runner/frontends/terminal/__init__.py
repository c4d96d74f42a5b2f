"""What the plain and the full-screen front end share: the detection of the terminal and the reading of its input.

Imports nothing from the other front ends. Start reading at `probe.py`.
"""
