"""Laws of scripts on the standard input of a shell, with real bash and dash as the judge."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model.tier import Tier
from tests.support.classified import judge
from tests.support.law import examples

LINES = st.sampled_from((
    "touch made1", "echo a", "ls", "true && touch made2", "read -r x", "read -n 4 x", "head -n 1 > /dev/null", "cat",
    "cat <<'X'", "X", "echo touch made3", "cd .", "rm -i none", "echo $(cat)", "[ -f none ] || ls", "alias ls='touch made4'",
    "set -e", "x=1", "echo \"a\nb\"", "{ ls; }", ": '", "'", "while read -r y; do echo; done", "exit", "#", "ls; read -r x",
))  # fmt: skip
FORMS = st.sampled_from((
    "bash <<'EOF'\n{}\nEOF\n", "bash -s a b <<'EOF'\n{}\nEOF\n", "cat <<'EOF' | bash\n{}\nEOF\n", "bash - <<'EOF'\n{}\nEOF\n",
    "bash /dev/stdin <<'EOF'\n{}\nEOF\n", ". /dev/stdin <<'EOF'\n{}\nEOF\n", "sh <<'EOF'\n{}\nEOF\n",
    "cat <<'EOF' | cat | sh\n{}\nEOF\n", "{{ bash; }} <<'EOF'\n{}\nEOF\n",
))  # fmt: skip


@pytest.mark.threat("T171")
@examples(40, many=600)
@given(st.lists(LINES, min_size=1, max_size=6), FORMS)
def test_what_only_reads_makes_no_file(lines: list[str], form: str) -> None:
    script = form.format("\n".join(lines))
    if judge(script).tiers[0] > Tier.READ:
        return
    folder = Path(tempfile.mkdtemp())
    try:
        subprocess.run(
            ["/bin/bash", "--norc", "--noprofile", "-c", script],
            cwd=folder, env={"PATH": "/usr/bin:/bin"}, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert list(folder.iterdir()) == [], script
    finally:
        shutil.rmtree(folder)
