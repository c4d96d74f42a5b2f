"""The way out of a sandbox that has named hosts and nothing else: one proxy in the runner, asked from inside.

A helper makes a listening socket on the loopback of its own network namespace and hands it over before it locks itself
in. A socket belongs to the namespace that it was made in, whoever accepts on it: so the proxy here takes the
connections of commands directly, and nothing of the host's network is ever inside.
"""
