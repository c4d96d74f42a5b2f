"""Tests of uses that are not certain, and that the sandbox bounds: tier execute, no rights of their own."""

import pytest

from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import Allow
from tests.support.permission_machine import assess, judge, ruling

T, D, N = Mode.TRUST_PROJECT, Mode.DEFAULT, Mode.DONT_ASK

# fmt: off
BOUNDED = [
    ("goreleaser check",                         "a program that no rule describes"),
    ("pdp11 < in.txt | head -3",                 "in a pipeline"),
    ("ponyc a.pony -o . && ./a",                 "before another program"),
    ('sed -n 1,5p "$f"',                         "a word that may become -i"),
    ("sed -n 1,5p $f",                           "one that may become several words"),
    ("for f in *; do sed -n 1p $f; done",        "the name of a file"),
    ('git diff "$ref"',                          "a flag of Git"),
    ("find $x -name y",                          "a test of find"),
    ("find $x -exec grep -n y {} +",             "with a command that reads"),
    ('git bisect good "$x"',                     "a flag of a subcommand"),
    ("git ls-files | xargs sed -n 1p",           "words from data"),
    ("cp $files out",                            "operands that shift"),
    ("tar cf out.tar *",                         "a flag of tar"),
    ("export JAVA_HOME=/opt/jdk; ls",            "a variable for all later programs"),
    ("export PATH=/opt/jdk/bin:$PATH; ls",       "the list of program folders"),
    ("LD_LIBRARY_PATH=./lib ls",                 "a variable for one program"),
    ("FOO=1 sort a.txt",                         "any variable"),
    ("env -i ls",                                "no variable"),
    ("env - PATH=/usr/bin make",                 "none but one"),
    ("grep --zzz foo a.txt",                     "a flag that the rule does not list"),
    ("sort -S1 -Zn a.txt",                       "one in a cluster"),
    ("tree --gitignore=x src",                   "one with a value"),
    ("git log --zzz -3",                         "one of a reading command of Git"),
    ("pip list --zzz",                           "one of a package manager that only reads here"),
    ("sed --in-pl s/a/b/ a.txt",                 "an abbreviation of a flag that writes"),
    ("pkill -f 'node server.js'",                "processes of the sandbox"),
    ("killall node; kill -9 123",                "likewise"),
]
ASKED = [
    ("goreleaser check; curl https://x.org",     Tier.NETWORK,       "a host beside it"),
    ("goreleaser; cat @TOP/log/syslog",          Tier.READ_OUTSIDE,  "a path outside"),
    ("cp $files /srv/out",                       Tier.WRITE_OUTSIDE, "a path outside among the words"),
    ('kubectl get pods "$x"',                    Tier.NETWORK,       "the host that every use needs"),
    ("git fetch $remote",                        Tier.NETWORK,       "likewise"),
    ("git branch $x",                            Tier.UNKNOWN,       "a flag that deletes a branch"),
    ("git $x",                                   Tier.UNKNOWN,       "any subcommand"),
    ("rm $x",                                    Tier.UNKNOWN,       "any file may be deleted"),
    ("git stash $x",                             Tier.UNKNOWN,       "a subcommand that forgets"),
    ("echo drop | xargs git stash",              Tier.UNKNOWN,       "likewise, from data"),
    ('git reflog "$x"',                          Tier.UNKNOWN,       "likewise"),
    ("git restore *",                            Tier.UNKNOWN,       "names that may be every file"),
    ("git diff --name-only | xargs git restore", Tier.UNKNOWN,       "likewise, from data"),
    ("echo . -delete | xargs find",              Tier.UNKNOWN,       "known data that deletes"),
    ("for i in . -delete; do find $i; done",     Tier.UNKNOWN,       "likewise, of a loop"),
    ("find . -del$x",                            Tier.UNKNOWN,       "the beginning of an action"),
    ('find "$x" -delete',                        Tier.UNKNOWN,       "an action beside the doubt"),
    ("find . -name $x -delete",                  Tier.DANGEROUS,     "a test that may select every file"),
    ('find "$x" -exec git reset --hard \\;',     Tier.DANGEROUS,     "a command beside the doubt"),
    ("find $x -fprint .git/hooks/pre-commit",    Tier.DANGEROUS,     "a written file beside the doubt"),
    ("git-reset --hard",                         Tier.DANGEROUS,     "a subcommand of Git as a program"),
    ("PATH=/x:$PATH git-lfs prune",              Tier.DANGEROUS,     "likewise, in spite of a rule for the name"),
    ("/usr/lib/git-core/git-clean -fdx",         Tier.DANGEROUS,     "in the folder of these programs"),
    ("/usr/libexec/git-core/git reset --hard",   Tier.DANGEROUS,     "Git itself in that folder"),
    ("srm -r src",                               Tier.DANGEROUS,     "a program that overwrites"),
    ("echo x > .git/objects/pack/x.pack",        Tier.DANGEROUS,     "a file of Git that undo does not store"),
    ("timeout $x git reset --hard",              Tier.UNKNOWN,       "the command inside is not read"),
    ("env $x ls",                                Tier.UNKNOWN,       "likewise"),
    ("$x status",                                Tier.UNKNOWN,       "any program, with a meaning of its own in a shell"),
    ("IFS=x; ls $y",                             Tier.UNKNOWN,       "bash itself obeys the variable"),
    ("export BASH_ENV=./x; bash -c ls",          Tier.UNKNOWN,       "likewise"),
    ("flock lock -c 'touch x'",                  Tier.UNKNOWN,       "a flag is no program"),
    ("ŀs",                                       Tier.UNKNOWN,       "a letter of another script"),
    ("export X=1; git reset --hard",             Tier.DANGEROUS,     "a variable hides nothing"),
    ("sudo goreleaser",                          Tier.DANGEROUS,     "more rights"),
    ("rm --zzz a.txt",                           Tier.UNKNOWN,       "an unlisted flag of a program that deletes"),
    ("mv --zzz a.txt b.txt",                     Tier.UNKNOWN,       "likewise"),
    ("git branch --zzz x",                       Tier.UNKNOWN,       "one beside flags that delete a branch"),
    ("git remote --verbos remove x",             Tier.UNKNOWN,       "one before a subcommand"),
    ("git merge --quit-x",                       Tier.UNKNOWN,       "one of a command that changes the repository"),
    ("env --zzz git reset --hard",               Tier.UNKNOWN,       "one before another command"),
    ("scp -Zx a.txt host:b",                     Tier.UNKNOWN,       "one of a command that names hosts"),
    ("pip list --outdat",                        Tier.NETWORK,       "an abbreviated flag that connects"),
    ("pip list --zzz -o",                        Tier.NETWORK,       "a listed one beside an unlisted one"),
    ("pip list -Zo",                             Tier.NETWORK,       "one in the same cluster"),
    ("grep --zzz=https://x.org/a foo",           Tier.NETWORK,       "a host in its value"),
    ("grep --zzz @TOP/log/syslog",               Tier.READ_OUTSIDE,  "a path outside beside it"),
    ("grep --zzz=@TOP/log/syslog foo",           Tier.READ_OUTSIDE,  "a path outside in its value"),
    ("cp --zzz x .git/hooks/pre-commit",         Tier.DANGEROUS,     "a file that programs run by themselves"),
    ("tree --zzz=.git/hooks/pre-commit",         Tier.DANGEROUS,     "one in its value"),
    ("tree --zzz ~/.bashrc",                     Tier.DANGEROUS,     "one of the home"),
    ("tree -Z.git/hooks/pre-commit",             Tier.DANGEROUS,     "one behind its letter"),
    ("sed --in-pl s/a/b/ *",                     Tier.DANGEROUS,     "every file of the workspace"),
    ("git checkout $(basename --zzz x)",         Tier.UNKNOWN,       "nothing is known about what it prints"),
    ("goreleaser > .git/hooks/pre-commit",       Tier.DANGEROUS,     "a file that programs run by themselves"),
]
RULES = [
    # rules, script, verdict in trust-project, why
    ('deny run=["goreleaser", "**"]', "goreleaser check",             Ruling.DENY, "the rule names it"),
    ('deny run=["git", "push", "**"]', "goreleaser git push",         Ruling.DENY, "it may run its words"),
    ('deny run=["sed", "-i", "**"]',  'sed "$x" a.txt',               Ruling.DENY, "the word may be the denied one"),
    ('deny run=["sed", "--in-place", "**"]', "sed --in-pl s/a/b/ a", Ruling.DENY, "an abbreviation of the denied one"),
    ('deny run=["tree", "-o", "**"]', "tree -Zo x",                   Ruling.DENY, "in a cluster"),
    ('deny write=["docs/**"]',        "sed --in-pl s/a/b/ docs/a.md", Ruling.DENY, "it may write that file"),
    ('ask tier=["unknown"]',          "grep --zzz foo",               Ruling.ASK,  "asked about before, and so now"),
    ('allow host=["x.org"]',          "tree --zzz; curl https://x.org", Ruling.ASK, "no host beside it"),
    ('ask tier=["unknown"]',          "goreleaser check",             Ruling.ASK,  "asked about before, and so now"),
    ('deny tier=["unknown"]',         'sed -n 1p "$f"',               Ruling.DENY, "likewise"),
    ('allow host=["x.org"]',          "LD_PRELOAD=./a.so curl https://x.org", Ruling.ASK, "other code gets no host"),
    ('allow host=["x.org"]',          "PATH=.:$PATH; curl https://x.org", Ruling.ASK, "nor does another program"),
    ('allow host=["x.org"]',          "goreleaser; curl https://x.org", Ruling.ASK, "nor one beside it"),
    ('allow run=["curl", "**"] host=["x.org"]', "X=1 curl https://x.org", Ruling.ASK, "nor by a rule for the command"),
    ('allow host=["x.org"]',          "curl https://x.org",           Ruling.ALLOW, "the harmless neighbour"),
]
# fmt: on


@pytest.mark.threat("T166")
@pytest.mark.parametrize(("script", "why"), BOUNDED, ids=[row[0] for row in BOUNDED])
def test_a_bounded_use_gets_no_rights_beyond_the_workspace(script: str, why: str) -> None:
    for mode in (T, N):
        verdict = judge(script, "", mode)
        assert isinstance(verdict, Allow), (why, verdict)
        terms = verdict.permit.terms
        assert (terms.hosts, terms.read, terms.write, terms.credentials) == ((), (), (), ()), why
    assert ruling(judge(script, "", D)) is Ruling.ASK, why


@pytest.mark.threat("T166")
@pytest.mark.parametrize(("script", "tier", "why"), ASKED, ids=[row[0] for row in ASKED])
def test_what_the_sandbox_would_have_to_open_is_asked_about(script: str, tier: Tier, why: str) -> None:
    assert assess(script, "").tiers[0] is tier, why
    # A denial where no answer can open the path.
    assert ruling(judge(script, "", T)) is not Ruling.ALLOW, why


@pytest.mark.threat("T166")
@pytest.mark.parametrize(("rules", "script", "expected", "why"), RULES, ids=[f"{row[0]}-{row[1]}" for row in RULES])
def test_rules_of_users_see_the_doubt(rules: str, script: str, expected: Ruling, why: str) -> None:
    assert ruling(judge(script, rules, T)) is expected, why
