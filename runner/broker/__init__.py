"""The credential broker: requests of a command get a header that the command never sees.

`rows` reads `[[credential]]`; `lender` hands the sandbox's proxy plain callables; `source` finds the secret when it is
first needed; `authority` makes the certificates of a session where TLS is opened.
"""
