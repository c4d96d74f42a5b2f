"""Export formats of the audit log: JSON lines, CSV, SARIF, HTML and OTLP, one module for each.

Start reading at `reading.py`, which prepares one decision for all formats.
"""
