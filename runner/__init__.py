"""The shell: the only package that sees everything."""
