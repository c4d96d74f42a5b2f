"""Export formats of the audit log: JSON lines, CSV, SARIF, HTML and OTLP.

May import the rest of `audit`, but not its stores, and everything below it. Start reading at `table.py`, the
shortest format.
"""
