"""Abstract interpretation of a shell script: which commands may run, with which words, on which paths.

Handlers of single programs are passed as an argument, so this package imports none of them. May import `languages`
and everything below it. Start reading at `interpreter.py`; `policy/model/abstract_word.py` has the values.
"""
