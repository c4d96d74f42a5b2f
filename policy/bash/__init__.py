"""The strict bash parser: script text to a syntax tree, or to `Opaque` where the text is not understood with certainty.

`crosscheck.py` compares every tree with bashlex. May import `describe`, `toml` and `model`. Start reading at
`parser.py`.
"""
