"""The credential broker: adds headers to requests of a command, which never sees the credentials.

`secret_source.py` finds a secret when it is first needed, `session_ca.py` issues certificates where TLS is intercepted.
May import the rest of `secrets`, and `sandbox.egress`. Start reading at `injector.py`.
"""
