"""Classification: the Assessment of an action, with its tiers, and the words and rules behind each tier."""

from typing import TYPE_CHECKING

from policy.handlers import grammar
from policy.interpreter.interpreter import Interpreter
from policy.interpreter.path_classifier import MOST_WORK_AFTER, TooMuchError
from policy.interpreter.shell_state import ExecutionFrame, ExpandedCommand, State
from policy.model import action as actions
from policy.model.abstract_word import literal
from policy.model.action import Action, RunScript
from policy.model.assessment import Assessment, Check, Effect, EffectKind, Reason
from policy.model.facts import Facts
from policy.model.profile import Profile, Source
from policy.model.secret_paths import inside
from policy.model.tier import Tier
from policy.rules.rule import Role
from policy.rules.rulebook import RuleBook

if TYPE_CHECKING:
    from policy.permission.flag_rights import FlagRights

_TOO_MUCH = "more than one decision can analyse"


def classify(
    action: Action,
    facts: Facts,
    rules: RuleBook,
    profile: Profile,
    source: Source = Source.MODEL,
    typed: "FlagRights | None" = None,
) -> Assessment:
    """Return the assessment of one action that `source` proposed, with the users' rules of `profile` applied.

    `typed` holds the rights that a person added to the action by flags. The function is total: anything that it cannot
    determine gets tier unknown, with the reason.
    """
    try:
        assessment = _classify(action, Interpreter(facts, rules, profile, grammar, typed.hosts if typed else ()))
        if any(rule.rights for rule in profile.permissions):
            from policy.permission.flag_rights import with_rights_of_rules  # only if a rule adds rights

            more = with_rights_of_rules(assessment, typed, facts, profile.permissions, source)
            if more is not None and more != typed:
                typed = more
                assessment = _classify(action, Interpreter(facts, rules, profile, grammar, more.hosts))
        return _ruled(assessment, facts, profile, source, typed)
    except Exception as error:  # the named seam: a defect in the gate must ask, never let pass or crash
        why = f"the analysis failed with an internal error ({type(error).__name__})"
        reason = Reason(Tier.UNKNOWN, why, Check.GATE_FAILURE)
        # The action may contain something that a user's rule denies, so a question is required in every mode.
        asked = (reason,) if profile.permissions or profile.denied else ()
        return Assessment(action, (Effect(EffectKind.UNKNOWN, why),), (reason,), asked=asked)


def _ruled(
    assessment: Assessment, facts: Facts, profile: Profile, source: Source, typed: "FlagRights | None"
) -> Assessment:
    if not profile.permissions and not typed:
        return assessment
    from policy.permission.match import ruled  # only if there are rules

    if not typed:
        return ruled(assessment, facts, profile.permissions, source)
    from policy.permission.flag_rights import widened

    wider = widened(assessment, typed, facts, profile)
    return ruled(wider, facts, (*profile.permissions, *typed.rules), source)


def _classify(action: Action, interpreter: Interpreter) -> Assessment:
    tree = ""
    try:
        tree = _interpret(action, interpreter)
        if interpreter.findings.worst > Tier.READ:
            for again in interpreter.findings.deferred_checks:
                again()
    except TooMuchError:
        interpreter.classifier.budget.left = MOST_WORK_AFTER
        if isinstance(action, RunScript):
            from policy.interpreter.unread_script import refuse  # only where a script is not understood

            refuse(interpreter.findings, action.script, _TOO_MUCH, State((action.cwd,)), Check.TIME_LIMIT, None)
        else:
            interpreter.findings.unknown(_TOO_MUCH, Check.TIME_LIMIT, None)
    findings = interpreter.findings
    plain = findings.worst is Tier.WRITE and not findings.beyond_plain_edits
    # A signature speaks for the user wherever it is shown, a note in every later session, and a job works without the
    # user: every mode asks for them.
    asks = isinstance(action, actions.SignGit | actions.ProposeNote | actions.ScheduleJob)
    asked = findings.reasons if asks and getattr(action, "operation", "") != "list" else ()
    return Assessment(
        action,
        findings.effects,
        findings.reasons,
        plain,
        tree,
        findings.steps,
        asked=asked,
        sourced=tuple(findings.sourced.items()),
    )


def _interpret(action: Action, interpreter: Interpreter) -> str:
    """Judge an action, and return the printed tree if it is a script."""
    match action:
        case RunScript():
            return _script(action, interpreter)
        case actions.StartServer():
            _server(action, interpreter)
        case actions.RunHook():
            _hook(action, interpreter)
        case actions.StartLanguageServer():
            _language_server(action, interpreter)
        case actions.RunArgv(argv=()):
            interpreter.findings.unknown("there is no program to run", Check.EMPTY_COMMAND, None)
        case actions.RunArgv(argv=argv):
            words = [literal(word) for word in argv]
            interpreter.simple(ExpandedCommand(words, State((action.cwd,)), None, ExecutionFrame(in_shell=False)))
        case actions.ReadFile(path=path):
            _file(interpreter, Role.READ, path, "reads a file")
        case actions.WriteFile(path=path) | actions.EditFile(path=path):
            if isinstance(action, actions.EditFile):
                _file(interpreter, Role.READ, path, "reads a file")
            _file(interpreter, Role.WRITE, path, "writes a file")
        case actions.ListFolder(path=path):
            _file(interpreter, Role.NAMES, path, "lists a folder")
        case actions.GlobFiles(root=root):
            _file(interpreter, Role.TREE, root, "finds files by name")
        case actions.GrepFiles(root=root):
            _file(interpreter, Role.READ, root, "searches in files")
        case actions.QueryCode():
            from policy.interpreter.tool_call import judge_code_query  # few calls are about symbols

            judge_code_query(action, interpreter.findings)
            if action.path:
                _file(interpreter, Role.READ, action.path, "reads a file")
        case actions.ReadProcess():
            text = "reads the output of a process of this session"
            interpreter.findings.add_reason(Tier.READ, text, Check.PROCESS_OUTPUT, None)
        case actions.WriteProcess():
            _input(action, interpreter)
        case actions.SignalProcess(process=process, own=own):
            text = f"sends a signal to {process}" + ("" if own else ", which the user started")
            tier = Tier.READ if own else Tier.EXECUTE
            interpreter.findings.add_reason(tier, text, Check.PROCESS_SIGNAL, None)
        case actions.SignGit(what=what):
            interpreter.findings.add_reason(Tier.DANGEROUS, f"signs a {what} with your key", Check.SIGNATURE, None)
        case actions.ConvertDocument():
            text = "converts a document, which only an action that was allowed may need"
            interpreter.findings.unknown(text, Check.CONVERSION, None)
        case _:
            from policy.interpreter.tool_call import judge_tool_call  # most actions are commands or file tools

            judge_tool_call(action, interpreter.findings)
    return ""


def _server(action: actions.StartServer, interpreter: Interpreter) -> None:
    """Judge the start of a tool server: what makes its command dangerous or secret stays, and the rest is bounded by
    the rights that the configuration names.
    """
    from policy.interpreter.tool_call import judge_server_start  # few sessions have servers

    typed = interpreter.findings.private_hosts
    inner = Interpreter(interpreter.facts, interpreter.rules, interpreter.profile, grammar, typed)
    if action.argv:
        words = [literal(word) for word in action.argv]
        inner.simple(ExpandedCommand(words, State((action.cwd,)), None, ExecutionFrame(in_shell=False)))
    judge_server_start(action, interpreter.findings, inner.findings.reasons)


def _hook(action: actions.RunHook, interpreter: Interpreter) -> None:
    """Judge the run of a hook, as the start of a tool server is judged."""
    from policy.interpreter.tool_call import judge_hook_run  # few sessions have hooks

    inner = Interpreter(interpreter.facts, interpreter.rules, interpreter.profile, grammar, ())
    if action.argv:
        words = [literal(word) for word in action.argv]
        inner.simple(ExpandedCommand(words, State((action.cwd,)), None, ExecutionFrame(in_shell=False)))
    judge_hook_run(action, interpreter.findings, inner.findings.reasons)


def _language_server(action: actions.StartLanguageServer, interpreter: Interpreter) -> None:
    """Judge the start of a language server, as the run of a hook is judged."""
    from policy.interpreter.tool_call import judge_language_server  # few sessions start one

    inner = Interpreter(interpreter.facts, interpreter.rules, interpreter.profile, grammar, ())
    facts, program = interpreter.facts, action.argv[0] if action.argv else ""
    if action.argv:
        words = [literal(word) for word in action.argv]
        inner.simple(ExpandedCommand(words, State((action.cwd,)), None, ExecutionFrame(in_shell=False)))
    own = inside(program, facts.workspace) or (bool(program) and inside(facts.look(program).real, facts.workspace))
    judge_language_server(action, interpreter.findings, inner.findings.reasons, of_workspace=own)


def _input(action: actions.WriteProcess, interpreter: Interpreter) -> None:
    """Judge input for a running process: it has at least the tiers of the process, because its effects are unknown.

    The text is not read: the program that receives it decides what it means. The rights of the process bound it.
    """
    findings, names = interpreter.findings, {tier.label: tier for tier in Tier}
    floor = Tier.EXECUTE if action.writes else Tier.READ
    if action.writes:
        findings.add_effect(EffectKind.RUNS, f"the input of {action.process}")
    findings.add_reason(floor, f"writes to {action.process}, which decides what that does", Check.PROCESS_INPUT, None)
    for label in action.tiers:
        tier = names.get(label, Tier.UNKNOWN)
        if tier > floor:
            text = f"writes to {action.process}, whose own tier is {tier.label}"
            findings.add_reason(tier, text, Check.PROCESS_INPUT, None)


def _script(action: RunScript, interpreter: Interpreter) -> str:
    """Parse a script, compare the tree with a second parser, interpret the tree, and return it as printed text."""
    # Imported only for a script: the exact words of `agent exec -- ...` need no parser, and start sooner.
    from policy.bash.ast import Opaque
    from policy.bash.crosscheck import find_disagreement
    from policy.bash.parser import read
    from policy.bash.printer import show

    tree = read(action.script)
    if not isinstance(tree, Opaque):
        printed_tree = show(tree)
        tree = find_disagreement(action.script, tree) or tree
    if isinstance(tree, Opaque):
        from policy.interpreter.unread_script import refuse  # only where a script is not understood

        cwd = State((action.cwd,))
        refuse(interpreter.findings, action.script, tree.reason, cwd, Check.UNREADABLE_SCRIPT, tree.span)
        return ""
    interpreter.classifier.budget.allow_script(len(action.script))
    interpreter.shell.run(tree, State((action.cwd,), arguments=()))  # the sandbox gives a script no arguments
    if not tree.items:
        interpreter.findings.add_reason(Tier.READ, "there is nothing to run", Check.EMPTY_SCRIPT, None)
    return printed_tree


def _file(interpreter: Interpreter, role: Role, path: str, text: str) -> None:
    if not path.startswith("/"):
        interpreter.findings.unknown("the path does not start at the root folder", Check.RELATIVE_PATH, None)
        return
    interpreter.findings.add_reason(Tier.READ, text, Check.FILE_TOOL, None)
    interpreter.findings.access_path(role, literal(path), ("/",), Check.FILE_TOOL, None)
