"""The egress proxy: the only way from a sandbox to the network, restricted to the allowed hosts.

A helper opens a listening socket on the loopback of its own network namespace before it is fully confined, and passes
the socket to the proxy with its answer `ready`. A socket stays in the namespace that created it, so the proxy in the
runner accepts connections of commands without any network of the host inside. Imports only `sandbox.backend` and
`policy.model`. Start reading at `proxy.py`.
"""
