"""Credentials: the `Secret` type, where secrets are found, and the redactor that masks them in every output.

`broker/` adds credentials to requests outside the sandbox. May import `state`, `text`, `problems` and `sandbox.egress`.
Start reading at `secret.py`.
"""
