"""Tools for people who write policies: expectations as tests, lint, tables, and imports from other products.

May import `gate` and everything below it. Start reading at `expectations.py`.
"""
