"""References to the checks that are written in code, as records, filters and exports name them.

A name is `AREA/CHECK` and is never changed or used again, because records keep it. Older records name
the area alone.
"""

from policy.model.assessment import RuleKind, RuleRef


def _check(name: str) -> RuleRef:
    return RuleRef(RuleKind.BUILTIN, name)


# fmt: off
# The request as a whole
EMPTY_COMMAND           = _check("classification/empty-command")
EMPTY_SCRIPT            = _check("classification/empty-script")
FILE_TOOL               = _check("classification/file-tool")
GATE_FAILURE            = _check("classification/gate-failure")
RELATIVE_PATH           = _check("classification/relative-path")
TIME_LIMIT              = _check("classification/time-limit")
UNREADABLE_SCRIPT       = _check("classification/unreadable-script")

# Commands, redirections and control flow of a script
AMBIGUOUS_COMMAND       = _check("shell-syntax/ambiguous-command")
ARITHMETIC_COMMAND      = _check("shell-syntax/arithmetic-command")
ASSIGNMENT              = _check("shell-syntax/assignment")
CASE_COMMAND            = _check("shell-syntax/case-command")
COMPUTED_PROGRAM_NAME   = _check("shell-syntax/computed-program-name")
CONDITION               = _check("shell-syntax/condition")
FUNCTION_CALL_LIMIT     = _check("shell-syntax/function-call-limit")
FUNCTION_DEFINITION     = _check("shell-syntax/function-definition")
INHERITED_DESCRIPTOR    = _check("shell-syntax/inherited-descriptor")
INTEGER_VARIABLE        = _check("shell-syntax/integer-variable")
PROGRAM_BY_PATH         = _check("shell-syntax/program-by-path")
REDIRECTION             = _check("shell-syntax/redirection")
SPECIAL_VARIABLE        = _check("shell-syntax/special-variable")
TOO_MANY_WORDS          = _check("shell-syntax/too-many-words")
UNLISTED_PROGRAM        = _check("shell-syntax/unlisted-program")
WORKSPACE_PROGRAM       = _check("shell-syntax/workspace-program")

# Expansion of words
AMBIGUOUS_WORD          = _check("word-expansion/ambiguous-word")
ARRAY_INDEX             = _check("word-expansion/array-index")
ARITHMETIC_EVALUATION   = _check("word-expansion/arithmetic-evaluation")
PATTERN_LISTING         = _check("word-expansion/pattern-listing")
UNKNOWN_HOME            = _check("word-expansion/unknown-home")

# Verdicts
ADDITIONAL_RIGHT        = _check("escalation/additional-right")
NO_REASON               = _check("decision/no-reason")
RIGHTS_FLOOR            = _check("rights/floor")
SANDBOX_SHOW            = _check("sandbox-show/shown-rights")
# fmt: on
