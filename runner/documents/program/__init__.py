"""The program that reads one document. It runs in the sandbox, in a new process for each document.

Standard input: one line of JSON (`kind`, `options`), then the document. Standard output: JSON, `document` or `problem`.
May import the standard library and the libraries of the extra `documents`, and nothing of ringfence, because only this
folder is visible there. Start reading at `main.py`.
"""
