"""Trees of files with patches between them, and the check that no patch contains a secret."""


def nothing_secret(path: str) -> bool:
    return False


# what there is, what is done in the copy, how each path changed, why
ROWS: list[tuple[str, str, dict[str, str], str]] = [
    ("echo 1 > a", "true", {}, "nothing"),
    ("echo 1 > a", "touch a; chmod 644 a", {}, "only a time"),
    ("seq 100 > a", "sed -i 's/^50$/x/; 3d; 97a y' a", {"a": "modified"}, "three places in one file"),
    ("seq 10 > a", "sed -i 's/^2$/x/; s/^8$/y/' a", {"a": "modified"}, "two changes in one hunk"),
    ("echo 1 > a", "printf 1 > a", {"a": "modified"}, "the last line break goes"),
    ("printf 1 > a", "echo 1 > a", {"a": "modified"}, "and comes"),
    ("printf 'a\\r\\nb\\r\\n' > a", "printf 'a\\r\\nc\\r\\n' > a", {"a": "modified"}, "CR LF"),
    ("printf 'a\\rb\\rc' > a", "printf 'a\\rx\\rc' > a", {"a": "modified"}, "CR alone"),
    ("printf 'a\\n' > a", "printf 'a\\r\\n' > a", {"a": "modified"}, "only the line breaks change"),
    ("touch a", "echo 1 > a; touch b; : > c", {"a": "modified", "b": "added", "c": "added"}, "empty files"),
    ("touch a; echo 1 > b", "rm a; : > b", {"a": "deleted", "b": "modified"}, "an empty one goes, one becomes empty"),
    ("echo 1 > a", "chmod 755 a", {"a": "modified"}, "a mode"),
    ("echo 1 > a; chmod 755 a", "chmod 644 a; echo 2 > a", {"a": "modified"}, "a mode and the content"),
    ("echo 1 > a", "mv a b", {"b": "renamed"}, "a new name"),
    ("echo 1 > a", "mkdir d; mv a d/b; chmod 755 d/b", {"d/b": "renamed"}, "a new name and mode"),
    ("echo 1 > a; cp a b; cp a c", "rm a b; cp c e; cp c f", {"e": "renamed", "f": "renamed"}, "several with one content"),
    ("ln -s x a; echo 1 > b", "rm a b; ln -s y a; ln -s z b; ln -s / c", {"a": "modified", "b": "modified", "c": "added"}, "links"),
    ("printf x > a", "rm a; ln -s x b", {"a": "deleted", "b": "added"}, "a link is no file of the same content"),
    ("ln -s x a", "rm a; echo 1 > a", {"a": "modified"}, "a link becomes a file"),
    ("mkdir d; echo 1 > d/x; echo 2 > d/y", "rm -r d; echo 3 > d", {"d": "added", "d/x": "deleted", "d/y": "deleted"}, "a folder becomes a file"),
    ("echo 1 > d", "rm d; mkdir d; echo 2 > d/x", {"d": "deleted", "d/x": "added"}, "a file becomes a folder"),
    ("mkdir d; echo 1 > d/x", "rm -r d; ln -s /etc d", {"d": "added", "d/x": "deleted"}, "a folder becomes a link"),
    ("head -c 9000 /dev/urandom > a; printf 'x\\0' > b", "head -c 100 /dev/urandom >> a; printf 'y\\0' > b; head -c 53 /dev/zero > c", {"a": "modified", "b": "modified", "c": "added"}, "binary"),
    ("printf '\\0' > a; echo t > b", "echo t2 > a; printf '\\0' > b", {"a": "modified", "b": "modified"}, "binary becomes text and back"),
    ("printf '\\xff\\xfe caf\\xe9\\n' > a", "printf '\\xff\\xfe th\\xe9\\n' > a", {"a": "modified"}, "not UTF-8"),
    ("touch -- -x", "echo 1 > -x; echo 2 > 'a b'; echo 3 > $'t\\tn\\nq\"b\\\\'; echo 4 > $'\\xff'; echo 5 > é; echo 6 > ' '; echo 7 > '{a => b}'",
     {"-x": "modified", "a b": "added", "t\tn\nq\"b\\": "added", "\udcff": "added", "é": "added", " ": "added", "{a => b}": "added"}, "odd names"),
    ("echo 1 > 'a b'", "mv 'a b' $'c\\td'", {"c\td": "renamed"}, "odd names of a rename"),
    ("seq 5 > a", "printf -- '--- a/x\\n+++ b/x\\n@@ -1 +1 @@\\ndiff --git a/y b/y\\n' >> a", {"a": "modified"}, "text that looks like a patch"),
    ("seq 5 > a", "mkdir n; echo 1 > n/x; echo 1 > a; chmod 000 a; chmod 000 n", {"a": "modified", "n/x": "added"}, "closed to us"),
    ("git init -q; echo 1 > a; git add .", "echo 2 > a; git add a; git -c user.name=x -c user.email=x commit -qm y; echo evil > .git/hooks/pre-commit; git config core.fsmonitor 'touch RAN'", {"a": "modified"}, "a commit is its files; nothing of .git"),
    ("yes | head -20000 > a", "yes | head -19000 > a; yes n | head -500 >> a", {"a": "modified"}, "many lines that are the same"),
    ("seq 30000 > a", "seq 30000 | tac > a", {"a": "modified"}, "nothing stays in its place"),
]  # fmt: skip
