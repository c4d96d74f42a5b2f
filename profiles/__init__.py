"""Packaged data: the default profile, prices and windows of models, seccomp tables, the rules of Seatbelt.

A package only so that its files are installed and found. Imports nothing from this project. Start reading at
`runner/config/load.py`, which reads `default.toml`.
"""
