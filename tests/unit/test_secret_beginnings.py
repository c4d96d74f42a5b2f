"""Tests of secrets that a line names indirectly: by a prefix, a pattern, or known data."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.classify import classify
from policy.handlers.echo_printf import echo_texts, printf_texts
from policy.interpreter.path_classifier import WorkBudget
from policy.interpreter.uncertain_paths import MOST, find_files, spell_pattern
from policy.interpreter.unread_script import expand_braces
from policy.model.abstract_word import literal
from policy.model.action import RunScript
from policy.model.tier import Tier
from tests.support.classified import BOOK, machine, profile
from tests.support.law import examples

# Files in the workspace of these lines, by folder.
LISTED = {
    "": ("notes.txt", "src", ".env", ".gitignore", "server.key", "sub", "credentials.json", "package.json"),
    "sub": (".env", "a.txt"),
    "src": ("main.py", "main.key.py"),
}

# fmt: off
REFUSED = [
    ("for d in ~/.ssh ~/.aws; do cat $d/*; done",          "each beginning that a word may have counts"),
    ("git cat-file --batch <<< HEAD:.env",                 "a revision that Git reads from its input"),
    ("git show --stdin <<< HEAD:.env",                     "a revision that Git reads from its input"),
    ("printf 'HEAD:.env\\n' | git cat-file --batch",        "the same through a pipe"),
    ("for d in .ssh .aws; do cat ~/$d/$x; done",           "also in the middle"),
    ("cat ~/.ssh/$(<list.txt)",                            "whatever the rest is, it lies below"),
    ("cat \"${HOME}/.aws/$name\"",                         "whatever the rest is, it lies below"),
    ("D=~/.ssh; cat $D/$f",                                "a variable with the folder"),
    ("[ -f x ] && D=~/.ssh || D=~/.aws; cat $D/$f",        "one of two"),
    ("ls ~/.ssh/$x",                                       "names, too, as `ls ~/.ssh`"),
    ("echo ~/.ssh/*",                                      "names, too, when bash lists them"),
    ("for f in ~/.aws/*; do echo $f; done",                "names, too, when bash lists them"),
    ("a=(~/.ssh/*); echo ${#a[@]}",                        "names, too, when bash lists them"),
    ("d=$HOME/.gnupg/*; echo $d",                          "names, too, when bash lists them"),
    ("cp ~/.ssh/$x .",                                     "copied"),
    ("cat ~/.$(echo ssh)/id_rsa",                          "a part that `echo` prints"),
    ("cd $(echo ~/.ssh); cat config",                      "a folder that `echo` prints"),
    ("cd $x; cat .env",                                    "secret by its name in any folder"),
    ("cat $d/.env",                                        "secret by its name in any folder"),
    ("cat $(echo ~/.ssh/id_rsa)",                          "known output"),
    ("cat \"$(printf '%s' .env)\"",                        "known output"),
    ("cat $(printf '\\x2eenv')",                           "known output with an escape"),
    ("cat $(echo -e '\\056env')",                          "known output with an escape"),
    ("cat $(ls .env)",                                     "a program that prints what it is given"),
    ("cat $(realpath .env)",                               "a program that prints what it is given"),
    ("x=$(echo .env); cat $x",                             "by a variable"),
    ("f() { cat \"$1\"; }; f $(echo .env)",                "by an argument"),
    ("for f in $(echo a.txt .env); do cat \"$f\"; done",   "by a loop"),
    ("echo .env | xargs cat",                              "by a pipe"),
    ("echo .env | head -1 | xargs cat",                    "by a pipe through programs that pass lines on"),
    ("{ echo a; echo .env; } | xargs cat",                 "from a group"),
    ("printf '%s\\n' .env | xargs -I{} cat {}",            "for a marker"),
    ("printf 'a.txt\\0.env\\0' | xargs -0 cat",            "separated by NUL"),
    ("echo .ssh | xargs -I{} cat ~/{}/config",             "inside a word"),
    ("echo .env | xargs -I{} sh -c 'cat \"$1\"' _ {}",     "as an argument of a script"),
    ("xargs cat <<< .env",                                 "from a here-string"),
    ("xargs cat <<E\n.env\nE",                             "from a here-document"),
    ("echo .env | parallel cat",                           "by another program that runs one for each line"),
    ("xargs -a <(echo .env) cat",                          "from a list that is known"),
    ("wc --files0-from=- <<< .env",                        "from a list that is known"),
    ("read f <<< .env; cat \"$f\"",                        "by `read`"),
    ("echo .env | while read f; do cat \"$f\"; done",      "by `read` in a loop"),
    ("while read f; do cat $f; done < <(echo .env)",       "by `read` from a substitution"),
    ("while read f; do cat $f; done <<< ~/.ssh/id_rsa",    "by `read` from a here-string"),
    ("mapfile -t a <<< .env; cat \"${a[@]}\"",             "by an array"),
    ("printf -v f '%s' .env; cat \"$f\"",                  "by `printf -v`"),
    ("find . -name .env | xargs cat",                      "files that all have that name"),
    ("find . -name .env -exec cat {} \\;",                 "files that all have that name"),
    ("find . -name '*.pem' -print0 | xargs -0 cat",        "files that all have such a name"),
    ("cat .en[v]",                                         "a pattern that spells a secret"),
    ("cat id_[r]sa",                                       "a pattern that spells a secret, there or not"),
    ("cat .e?v",                                           "a pattern that finds a secret alone"),
    ("cat s*.ke?",                                         "a pattern that finds a secret alone"),
    ("cat cred*",                                          "a pattern that finds a secret alone"),
    ("cat */.e*",                                          "a pattern that finds a secret alone, in a folder"),
    ("for f in .en?; do cat $f; done",                     "by a loop"),
    ("cat .e[[:alpha:]]v",                                 "a class of characters (bash(1), Pattern Matching)"),
    ("cat .e[![:digit:]x]v",                               "all but a class and a character"),
    ("x='.en[v]'; cat $x",                                 "by a variable that bash expands"),
    ("cat @WORK/.en[v]",                                   "by its full path"),
    ("mediainfo --Output=file://.env y.mp4",               "the value of an option that is an address"),
    ("file @id_rsa",                                       "a file of further arguments, where a program takes one"),
    ("a=.e; b=nv; cat $a$b",                               "built of parts"),
    ("cd sub; cat ../*.key",                               "a pattern in the folder above"),
    ("cd src; cat ../sub/.e*",                             "a pattern below the folder above"),
    ("cat sub/../*.key",                                   "a pattern behind `..`"),
    ("cd ..; cat work/.en?",                               "a pattern in the workspace, from outside of it"),
    (f"cat {'../' * 20}@WORK/.en?",                        "a pattern with more `..` than there are folders above"),
    ("git diff --no-index a.txt .en?",                     "a pattern, for a program that also takes revisions"),
    ("cat ~/.{ssh,aws}/$x",                                "each word that braces spell"),
    ("cat {.env,$x}",                                      "each word that braces spell"),
    ("cat ~/.config/{x,gh{,y}}/$z",                        "braces inside braces"),
    ("find . -name .env -execdir cat {} \\;",              "in the folder of the file"),
    ("find . -name '.en[v]' -exec cat {} +",               "a pattern that spells a secret"),
    ("find . -name '.en?' -exec cat {} +",                 "a pattern that finds a secret alone"),
    ("find sub -name '.e*' | xargs cat",                   "a pattern that finds a secret alone, in a folder"),
    ("find . -regex '.*/\\.env' -exec cat {} +",           "the end of a regular expression"),
    ("find . -samefile .env -exec cat {} +",               "the file itself by another name"),
    ("find .env sub/.env -type f | xargs cat",             "the files that it starts from"),
    ("find .env a.txt | while read f; do cat $f; done",    "the files that it starts from"),
    ("ls .en? | xargs cat",                                "a pattern in the words of a program that prints names"),
    ("for f in $(ls *.key); do cat $f; done",              "likewise"),
    ("ls -a | grep '^\\.env$' | xargs cat",                "names that are picked by a pattern for one of them"),
    ("git ls-files | grep -x .env | xargs cat",            "likewise"),
    ("grep -r x --include=.env .",                         "of a whole folder, nothing but files of that name"),
    ("grep -r x --include='*.key' --include=.env .",       "nothing but files of such names"),
    ("grep -r x --include='.en?' .",                       "a pattern that finds a secret alone"),
    ("rg -uuu x -g .env",                                  "nothing but files of that name"),
    ("rg -uu x --glob='**/*.pem'",                         "nothing but files of such names"),
    ("rg -uu x -g '!src' --iglob .ENV",                    "what is left out of it aside"),
    ("fd -H -g .env -x cat",                               "by a program that runs one for each file"),
    ("fd -H '^\\.env$' -X cat",                            "by a program that runs one for all files"),
    ("fd -H -e key -x cat {}",                             "by the ending of their names"),
    ("file -f - <<< .env",                                 "from a list that is known"),
    ("tar cf - -T <(echo .env)",                           "from a list that is known"),
    ("tar cf - --files-from=- <<< .env",                   "from a list that is known"),
    ("zip -@ x.zip <<< .env",                              "from a list that is known"),
    ("echo .env | cpio -o",                                "from a list that is known"),
    ("echo .env | pax -w",                                 "from a list that is known"),
    ("wc --files0-from=<(echo .env)",                      "from a list that is known"),
    ("a=(.ssh .aws); cat ~/${a[@]}",                       "one of an array"),
    ("bash <<< 'cat .env'",                                "a script on the input of a shell"),
    ("gh api -F body=@.env; (",                            "after a sign, in a script that cannot be read"),
    ("echo 'cat ~/.ssh/id_rsa' | sh",                      "a script on the input of a shell"),
    ("bash -c \"cat ~/.ssh/$x\"",                          "a script whose beginning is known"),
    ("xargs -I% sh -c 'cat ~/.%/id_rsa' <<< ssh",          "a script into which known data goes"),
    ("cat @HOMES/$USER/.ssh/$x",                           "in the home of an unknown user"),
    ("cat @HOMES/*/.ssh/$x",                               "in the home of an unknown user"),
    ("cat /proc/$PPID/environ",                            "of whichever process"),
    ("cat /proc/$(pgrep x)/environ",                       "of whichever process"),
    ("cat ~/.s*/$x",                                       "a pattern that a store matches"),
    ("cat ~/.a[w]s/$x",                                    "a pattern that a store matches"),
    ("test -r ~/.aws/$x",                                  "where a word may also be an operator"),
    ("tar cf - ~/.ssh/$x",                                 "where a word may also be a flag"),
    ("eval \"cat ~/.ssh/$x\"",                             "a script whose beginning is known"),
    ("echo a .env | cut -d' ' -f2 | xargs cat",            "by a program that cuts lines apart"),
    ("cat $(echo a .env | awk '{print $2}')",              "by a program that cuts lines apart"),
    ("cat $(echo .env | tr -d '\\n')",                     "by a program that cuts lines apart"),
    ("exec 3< <(echo .env); read f <&3; cat $f",           "by a descriptor"),
    ("while read f <&3; do cat $f; done 3< <(echo .env)",  "by a descriptor"),
    ("while read -u 4 f; do cat $f; done 4<<< .env",       "by a descriptor"),
    ("mapfile -u 4 -t a 4<<< .env; cat ${a[0]}",           "by a descriptor"),
    ("a=(.e*); cat \"${a[@]}\"",                           "a pattern in an array"),
    ("a=($(find . -name .env)); cat \"${a[0]}\"",          "known data in an array"),
    ("a+=(.env); cat \"${a[@]}\"",                         "added to an array"),
    ("find . \\( -name .env -o -name '*.key' \\) -exec cat {} +", "a choice between names of secrets"),
    ("find . -name '*.pem' -or -name '*.key' | xargs cat", "a choice between names of secrets"),
    ("egrep -r x --include='*.pem' .",                     "nothing but files of such names, by another name of grep"),
    ("zgrep -r x --include=.env .",                        "likewise"),
    ("ag -G '\\.env$' x",                                  "a regular expression for one name"),
    ("fd -H --glob '.en?' -x cat",                         "a pattern that finds a secret alone"),
    ("printf '%s\\n' .e* | xargs cat",                     "a pattern that is printed"),
    ("cat $(echo *.key)",                                  "a pattern that is printed"),
    ("stat -c %n .env | xargs cat",                        "a program that prints what it is given"),
    ("git check-ignore .env | xargs cat",                  "a program that prints what it is given"),
    ("sort -u <(echo .env) | xargs cat",                   "lines that are passed on"),
    ("awk -f .env a.txt",                                  "as a program, whose mistakes are printed"),
    ("make -f .env",                                       "as a program, whose mistakes are printed"),
]
ALLOWED = [
    ("echo ~/.ssh",                                        "a text"),
    ("echo \"put it in ~/.ssh/config\"",                   "a text"),
    ("x=$(echo .env); echo $x",                            "a text"),
    ("echo '~/.ssh/*' \"$HOME/.ssh/*\"",                   "a text"),
    ("case $p in ~/.ssh/*) echo no;; esac",                "compared with a text, without a look"),
    ("[[ $p == ~/.ssh/* ]] && echo no",                    "compared with a text, without a look"),
    ("grep -r '.ssh' src",                                 "a text to be found"),
    ("grep -n .env .gitignore",                            "a text to be found"),
    ("ls -la .env",                                        "names of the workspace may be seen"),
    ("echo .env | xargs ls -la",                           "names of the workspace may be seen"),
    ("cat $d/main.py",                                     "nothing secret is known of it"),
    ("cat src/$x",                                         "nothing secret is known of it"),
    ("cat *",                                              "everything: what is secret is masked"),
    ("cat .*",                                             "everything with a dot"),
    ("cat *.json",                                         "mostly other files"),
    ("grep -r x .",                                        "everything"),
    ("for f in *; do cat \"$f\"; done",                    "everything"),
    ("cat src/main.*",                                     "not secret"),
    ("cat $(echo a.txt)",                                  "known and not secret"),
    ("echo a.txt b.txt | xargs cat",                       "known and not secret"),
    ("while read f; do cat $f; done <<< a.txt",            "known and not secret"),
    ("find . -name '*.py' | xargs cat",                    "not secret"),
    ("find . -type f -not -name .env | xargs grep x",      "everything but the secret"),
    ("echo .env.example | xargs cat",                      "public"),
    ("cat @HOMES/$USER/$x",                                "nothing secret is known of it"),
    ("cat /proc/$PPID/status",                             "not secret"),
    ("cat $d/.claude/$x",                                  "a folder of any project"),
    ("find . -name .env -o -name a.txt | xargs cat",       "other files, too"),
    ("find . -type f -o -name '*.key' | xargs cat",        "other files, too"),
    ("find . ! -name .env -exec cat {} +",                 "everything but the secret"),
    ("echo a.txt .env | awk '{print length}' | xargs cat", "not the names"),
    ("while read f <&3; do cat $f; done 3< a.txt",         "a file of the project"),
    ("a=(*.txt); cat \"${a[@]}\"",                         "not secret"),
    ("egrep -r x --include='*.py' .",                      "not secret"),
    ("ag -G '\\.py$' x",                                   "not secret"),
    ("grep -G x a.txt",                                    "a kind of expression, and no choice"),
    ("echo * | xargs cat",                                 "everything: what is secret is masked"),
    ("echo *.key",                                         "names of the workspace may be seen"),
    ("stat .env",                                          "names of the workspace may be seen"),
    ("cd src; cat ../*.json",                              "mostly other files"),
    ("cd src; cat ../*.txt",                               "not secret"),
    ("find . -name '*env*' | xargs cat",                   "may be anything"),
    ("find . -name '.*' | xargs cat",                      "may be anything"),
    ("find . -name '*.py' -execdir cat {} \\;",            "not secret"),
    ("find . -regex '.*\\.py' -exec cat {} +",             "not secret"),
    ("find . -name .env -execdir ls -la {} \\;",           "names of the workspace may be seen"),
    ("find .env a.txt -type f | xargs ls -la",             "names of the workspace may be seen"),
    ("find src sub -type f | xargs cat",                   "everything: what is secret is masked"),
    ("ls *.key | wc -l",                                   "names of the workspace may be seen"),
    ("ls | xargs cat",                                     "everything: what is secret is masked"),
    ("ls *.txt | xargs cat",                               "not secret"),
    ("ls -a | grep env",                                   "names of the workspace may be seen"),
    ("git ls-files | grep '\\.env' | wc -l",               "names of the workspace may be seen"),
    ("git ls-files | grep -v .env | xargs cat",            "everything but the secret"),
    ("grep -r x --include='*.py' --include=.env .",        "other files, too"),
    ("grep -r x --include='*.py' .",                       "not secret"),
    ("grep -r x --exclude=.env .",                         "everything but the secret"),
    ("rg x -g '!.env'",                                    "everything but the secret"),
    ("rg x -g '*.py' -g '!*.key'",                         "not secret"),
    ("rg --files -g .env",                                 "names of the workspace may be seen"),
    ("fd -H .env",                                         "names of the workspace may be seen"),
    ("fd -e py -x cat",                                    "not secret"),
    ("fd -x wc -l",                                        "everything: what is secret is masked"),
    ("find . -name '*.pem' | wc -l",                       "names of the workspace may be seen"),
    ("a=(a.txt src); ls ./${a[@]}",                        "not secret"),
]
# fmt: on


def tier(script: str) -> Tier:
    facts = machine()
    names = lambda path: LISTED.get(path.removeprefix(facts.workspace).strip("/"))  # noqa: E731  # a table as a function
    text = script.replace("@WORK", facts.workspace).replace("@HOMES", facts.home.rpartition("/")[0])
    return classify(RunScript(text, facts.workspace), replace(facts, names=names), BOOK, profile()).tiers[0]


@pytest.mark.threat("T03")
@pytest.mark.threat("T04")
@pytest.mark.parametrize(("script", "why"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_may_only_be_a_secret_is_refused(script: str, why: str) -> None:
    assert tier(script) is Tier.SECRET, why


def test_the_home_and_that_a_store_is_there_are_no_secret() -> None:
    assert tier("ls ~") is tier("ls -d ~/.ssh*") is Tier.READ_OUTSIDE


@pytest.mark.parametrize(("script", "why"), ALLOWED, ids=[row[0] for row in ALLOWED])
def test_a_mention_and_an_everyday_pattern_are_no_secret(script: str, why: str) -> None:
    assert tier(script) is Tier.READ, why


STORES = st.sampled_from(["~/.ssh", "~/.aws", "~/.config/gcloud", "$HOME/.gnupg", "~/.kube"])
RESTS = st.sampled_from(
    ["/$x", "/*", "/$(cat a.txt)", "/a/$x", "/${x:-y}", "/$1", "/[a-z]*", "/$((1+1))", "/x$y.z", "/id_$k"]
)
USES = st.sampled_from(
    ["cat {}", "ls {}", "head -1 {}", "for f in {}; do cat $f; done", "x={}; cat $x", "grep -r k {}", "wc -l < {}"]
)


@pytest.mark.threat("T03")
@examples(200)
@given(STORES, RESTS, USES)
def test_whatever_follows_a_credential_store_is_refused(store: str, rest: str, use: str) -> None:
    assert tier(use.format(store + rest)) is Tier.SECRET


def test_what_echo_and_printf_print() -> None:
    assert echo_texts([literal("-n"), literal("a"), literal("b")]) == ("a b",)
    assert echo_texts([literal("-e"), literal(r"a\tb\x41\0101")]) == ("a\tbAA",)
    assert printf_texts([literal("%s-%s\\n")], [literal("a"), literal("b"), literal("c")]) == ("a-b\nc-\n",)
    assert printf_texts([literal("%b%%")], [literal(r"\n")]) == ("\n%",)
    assert printf_texts([literal("x")], [literal("never taken")]) == ("x",)


def test_braces_are_expanded_as_in_bash() -> None:
    assert expand_braces("cat ~/.{ssh,aws}/$x ${y} {z}") == ("~/.ssh/$x", "~/.aws/$x", "${y}", "{z}")
    assert set(expand_braces("{a{,b},c}")) == {"a", "ab", "c"}
    assert expand_braces("no braces here") == ()
    assert len(expand_braces("{a,b}" * 60)) <= MOST, "what is spelled stays bounded"


def test_patterns_match_as_in_bash() -> None:
    def find(pattern: str) -> tuple[str, ...]:
        return find_files(
            pattern, "/w", lambda path: LISTED.get(path.removeprefix("/w").strip("/")), "/w", WorkBudget()
        )

    assert spell_pattern(".en[vx]") == (".env", ".enx")
    assert spell_pattern(".en?") == spell_pattern("[a-c]") == ()
    assert find("*.txt") == ("notes.txt",)
    assert find("?env") == find("[.]env") == (), "a dot at the beginning is matched by a dot alone"
    assert find("./.e*") == ("./.env",)
    assert find("*/.e[!x]v") == ("sub/.env",)
    assert find("../*") == find("/*") or not find("../*")


def test_brackets_that_nothing_closes_stand_for_themselves() -> None:
    many = "[" * 9_000  # with a search for the end at each of them, this takes a quarter of a minute
    assert find_files(many, "/w", lambda folder: (many, "x"), "/w", WorkBudget()) == (many,)
    assert find_files("[]", "/w", lambda folder: ("[]", "x"), "/w", WorkBudget()) == ("[]",)
