"""A session with everything that a screen can show."""

from policy.model.action import EditFile, GrepFiles, ReadFile, RunScript, WriteFile
from policy.model.assessment import RuleKind, RuleRef
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import Cell, Problem
from runner import events
from runner.messages import Failure, Usage
from sandbox.backend import Connection, Enforcement, Level, Violation

RULE = RuleRef(RuleKind.COMMAND, "build", 12)
ESC = "\x1b"

REPLY = """\
# What I found

The parser drops the **last line** when it has no newline, see `Reader.lines` in
[the docs](https://docs.example/reader#lines). Three things follow, of which the second is one that is long enough to be wrapped:

1. `lines()` stops too early
2. the counts of the report are off by one for every file that was written by an editor that does not end its last line
   - seen in 日本語.txt
   - and in `notes.md`
3. nothing else

> The tests did not see it: their files all end with a newline.

| file | lines | said | why |
|---|---:|---:|---|
| a.txt | 3 | 3 | ends with a newline |
| 日本語.txt | 4 | 3 | does not, and this cell is so long that the table must give way somewhere to fit |

```python
def lines(text: str) -> list[str]:
    \"\"\"All of them.\"\"\"
    return text.split("\\n")[: 10 + 2]  # the last one too
```

I change it now.
"""

DIFF = """\
edited src/reader.py
@@ -10,7 +10,8 @@ class Reader:
     def lines(self) -> list[str]:
         found = []
-        for line in self.text.split("\\n")[:-1]:
+        ended = self.text.endswith("\\n")
+        for line in self.text.split("\\n")[: -1 if ended else None]:
             found.append(line)
         return found
 """


def judged(call: str, tier: Tier, ruling: Ruling, why: str) -> events.VerdictReached:
    return events.VerdictReached(call, (tier,), ruling, why, RULE, Cell(tier, Mode.TRUST_PROJECT, ruling))


def finished(
    call: str, text: str, *, status: int = 0, seconds: float = 0.0123, violations: tuple[Violation, ...] = ()
) -> events.ActionFinished:
    met = (Connection("files.example", 443, "tunnel", "192.0.2.7", True, "", 10, 20, 0.5),) if call == "3.2" else ()
    return events.ActionFinished(call, status, seconds, None, violations, None, text, None, met)


STORY: list[events.Event] = [
    events.SessionStarted(
        "s1",
        "/home/jo/reader",
        "/home/jo/reader",
        Mode.TRUST_PROJECT,
        "scripted:demo",
        False,
        Enforcement(
            Level.PARTIAL, "T1", (("network", True), ("root", True), ("limits", False)), ("no limits of memory",)
        ),
    ),
    events.Prompted("why is the count wrong?\nand mend it"),
    events.ModelThinking("They want the count fixed. I read the file first."),
    events.CallBegun("read"),
    events.ToolProposed("1.1", "read", ReadFile("/home/jo/reader/src/reader.py")),
    judged("1.1", Tier.READ, Ruling.ALLOW, "reads a file of the workspace"),
    events.ToolProposed("1.2", "grep", GrepFiles("lines", "/home/jo/reader", None)),
    judged("1.2", Tier.READ, Ruling.ALLOW, "reads files of the workspace"),
    finished("1.1", "".join(f"{number}\tx\n" for number in range(1, 121))),
    finished("1.2", "src/reader.py:3: lines"),
    *(events.ModelText(REPLY[start : start + 7]) for start in range(0, len(REPLY), 7)),
    events.ToolProposed("2.1", "edit", EditFile("/home/jo/reader/src/reader.py", "x", "y")),
    judged("2.1", Tier.WRITE, Ruling.ALLOW, "changes a file of the workspace"),
    finished("2.1", DIFF),
    events.ToolProposed("2.2", "write", WriteFile("/home/jo/reader/notes.md", "a\nb\n")),
    judged("2.2", Tier.WRITE, Ruling.ASK, "changes a file of the workspace"),
    events.QuestionAsked("2.2", "may it?"),
    events.QuestionAnswered("2.2", True, None),
    finished("2.2", "wrote notes.md\n@@ -0,0 +1,2 @@\n+a\n+b"),
    events.ToolProposed(
        "3.1",
        "bash",
        RunScript("pytest -q tests/test_reader.py \\\n  --maxfail=1 \\\n  -k 'lines and not slow'", "/home/jo/reader"),
    ),
    judged(
        "3.1",
        Tier.EXECUTE,
        Ruling.ALLOW,
        "`pytest` runs the project's code, which may do whatever the sandbox lets it do, so it is held in one",
    ),
    events.CommandOutput("3.1", 1, "collecting\n...\n"),
    finished(
        "3.1",
        "\n".join([*(f"test {number} passed" for number in range(30)), "[exit status 1]"]),
        status=1,
        seconds=75.4,
    ),
    events.ToolProposed("3.2", "bash", RunScript("pip download reader", "/home/jo/reader")),
    judged("3.2", Tier.NETWORK, Ruling.ASK, "reaches a host"),
    events.QuestionAsked("3.2", "may it?"),
    events.QuestionAnswered("3.2", True, None),
    finished(
        "3.2",
        f"Saved ./reader.whl{ESC}[31m red\n100 %",
        seconds=2.5,
        violations=(Violation("connecting to", "192.0.2.1", "allow the host", inferred=True),),
    ),
    events.ToolProposed("4.1", "bash", RunScript("cat ~/.ssh/id_rsa", "/home/jo/reader")),
    judged("4.1", Tier.SECRET, Ruling.DENY, "`~/.ssh/id_rsa` is a key"),
    events.Denied(
        "4.1",
        "$ cat ~/.ssh/id_rsa",
        Tier.SECRET,
        RULE,
        Problem("`~/.ssh/id_rsa` was not read", "it lies in a credential store", "go on without it"),
    ),
    events.ToolProposed("4.2", "bash", RunScript("rm -rf build", "/home/jo/reader")),
    judged("4.2", Tier.DANGEROUS, Ruling.ASK, "`rm -rf` deletes a tree"),
    events.QuestionAsked("4.2", "may it?"),
    events.QuestionAnswered("4.2", False, "move it to /tmp instead"),
    events.Denied(
        "4.2",
        "$ rm -rf build",
        Tier.DANGEROUS,
        RULE,
        Problem("`rm -rf build` was not run", "you said no", "move it to /tmp instead"),
    ),
    events.ToolProposed("4.3", "nope", None),
    events.MalformedCall(
        "4.3", "nope", Problem("there is no tool `nope`", "the tools are `bash`", "call one of these")
    ),
    events.Queued("and then commit", "steer"),
    events.Steered("and then commit"),
    events.Retrying(Failure.OVERLOADED, Problem("the provider is overloaded", "it says 529", "wait"), 1.234, 1, 3),
    events.Compacted("trim", 150000, 90000, None),
    events.Changed("mode", "trust-project", "plan"),
    events.PlanProposed("5.1", "## Plan\n\n1. mend `lines`\n2. test it"),
    events.Display("| a |\n|---|\n| b |", "markdown"),
    events.Display("a  1\nb  2", "text"),
    events.Notice("asking again in 1 s"),
    events.ErrorRaised(Problem("the provider did not answer", "it closed the connection", "try again")),
    events.RunEnded(3, "done", 2, Usage(1000, 200), ()),
]
