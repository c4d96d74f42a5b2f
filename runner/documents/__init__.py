"""Documents as text and images: PDF, images, notebooks and web pages, converted by a program in the sandbox.

A hostile document can take over the program that reads it, so that program runs apart: `program/` reads nothing but its
own files, has no network, and ends after one document.

May import `text`, `sandbox` and `policy`. Start reading at `convert.py`.
"""
