"""Tools for people who write policies: expectations as tests, lint, tables, and imports from other products.

May import the gate. Start reading at `expectations.py`.
"""
