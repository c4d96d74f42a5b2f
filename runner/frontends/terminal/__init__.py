"""The parts that the plain and the full-screen front end share: detection of the terminal, and reading its input.

Imports nothing from the other front ends. Start reading at `probe.py`.
"""
