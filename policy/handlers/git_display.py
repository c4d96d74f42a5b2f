"""Settings of Git that choose how it shows, converts or merges, and make it start no program (git-config(1))."""

import re

# Texts: `re` compiles them at their first use. Of the first any value, of the others only these.
_DISPLAY = (
    r"(?:advice|color|column|i18n)\.[a-z0-9.-]+|core\.(?:abbrev|quotepath|commentchar|precomposeunicode|ignorecase|filemode"
    r"|autocrlf|safecrlf|eol|whitespace|longpaths|bigfilethreshold|preloadindex|checkstat|trustctime)"
    r"|diff\.(?:algorithm|colormoved|colormovedws|context|interhunkcontext|mnemonicprefix|noprefix|renames|renamelimit"
    r"|statgraphwidth|statnamewidth|suppressblankempty|wordregex|ignoresubmodules|indentheuristic|relative)"
    r"|log\.(?:abbrevcommit|date|decorate|mailmap|showroot|graphcolors|initialdecorationset|excludedecoration)"
    r"|status\.(?:short|branch|relativepaths|showstash|showuntrackedfiles|aheadbehind|renames|renamelimit)"
    r"|blame\.(?:date|showemail|showroot|coloring|blankboundary)|grep\.(?:linenumber|column|patterntype|fullname|threads)"
    r"|format\.pretty|merge\.(?:conflictstyle|ff|renames|renamelimit|stat)|pull\.(?:rebase|ff)|push\.default|branch\.sort|tag\.sort"
    r"|rebase\.(?:autosquash|autostash|updaterefs)|user\.(?:name|email)|init\.defaultbranch|rerere\.enabled|safe\.directory"
    r"|fetch\.prune|stash\.showincludeuntracked|versionsort\.suffix|pack\.threads|index\.threads|gc\.auto"
)
_OFF = (
    r"(?:pager\.[a-z-]+|core\.(?:fsmonitor|untrackedcache)|(?:commit|tag)\.gpgsign|log\.showsignature|submodule\.recurse"
    r"|status\.submodulesummary|core\.usebuiltinfsmonitor)=(?:false|no|off|0)"
    r"|core\.pager=(?:cat)?|core\.hookspath=/dev/null|(?:core|sequence)\.editor=(?:true|:)"
    r"|diff\.submodule=(?:short|log)"
)


def starts_nothing(name: str, value: str | None) -> bool:
    """Return True if the setting `name` makes Git start no program when it has `value`; None: it stands without `=`,
    which Git takes for true. Closed world: False for a name that is not known."""
    name = name.lower()
    return bool(re.fullmatch(_DISPLAY, name)) or (value is not None and bool(re.fullmatch(_OFF, f"{name}={value}")))
