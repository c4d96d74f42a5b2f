"""Ways to give a shell a literal script on its standard input, or as a pipe. `@` stands for the script."""

# fmt: off
FORMS = [
    ("bash <<< '@'",                                  "a here-string"),
    ("bash <<'END'\n@\nEND",                          "a here-document"),
    ("x='@'; bash <<END\n$x\nEND",                    "a here-document with a known variable"),
    ("echo '@' | bash",                               "echo"),
    ("echo -n '@' | bash -e",                         "a flag that changes nothing"),
    ("printf '%s\\n' '@' | sh",                       "printf, and another shell"),
    ("printf '@\\n' | bash",                          "the format itself"),
    ("cat <<'END' | bash\n@\nEND",                    "cat passes its input on"),
    ("echo '@' | cat - | bash",                       "twice"),
    ("bash -s a b <<'END'\n@\nEND",                   "with arguments"),
    ("echo '@' | bash -s -- --flag",                  "with an argument like a flag"),
    (". /dev/stdin <<< '@'",                          "the current shell"),
    ("source /dev/stdin a <<END\n@\nEND",             "with an argument"),
    ("source <(echo '@')",                            "a pipe with a name"),
    ("bash <(echo '@')",                              "the same as a file"),
    ("bash < <(printf '@')",                          "the same as the input"),
    ("bash /dev/stdin <<< '@'",                       "the input as a file"),
    ("sh - <<< '@'",                                  "a dash alone ends the options"),
    ("env bash <<< '@'",                              "a program that passes its input on"),
    ("timeout 20 bash <<< '@'",                       "likewise"),
    ("exec bash <<< '@'",                             "in place of the shell"),
    ("time bash <<< '@'",                             "a keyword before it"),
    ("bash <<< \"bash <<< '@'\"",                     "a script in a script"),
    ("(echo : && echo '@') | bash",                   "a text of two commands"),
]
# fmt: on
