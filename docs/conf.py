"""Configuration of the static site (`make site`): Sphinx reads the Markdown pages in place.

The source folder is the root of the repository, so that links between the README and the pages work on the site too.
"""

import shutil
from pathlib import Path
from textwrap import dedent
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

project = "ringfence"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
include_patterns = ["README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**.md"]
exclude_patterns = ["build", "dist", "tests", "runner", "policy", "sandbox", "tools", "profiles", ".*"]
root_doc = "docs/index"
nitpicky = True  # with -W, a link or an anchor that leads nowhere is an error
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # a shortened JSON or console sample is shown without colours

html_theme = "furo"
html_title = "ringfence"
html_static_path = ["site"]
html_css_files = ["tables.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": False}

CONTENTS = {
    "Guide": """
        At the terminal <guide/terminal>
        The screen <guide/screen>
        Approvals <guide/approvals>
        Permissions <guide/permissions>
        Slash commands <guide/slash>
        Sessions <guide/sessions>
        Untrusted text <guide/information-flow>
        Memory <guide/memory>
        Scheduled jobs <guide/jobs>
        Skills <guide/skills>
        Bundles <guide/bundles>
        Undo <guide/undo>
        Transactions <guide/transactions>
        One command <guide/one-command>
        Runs <guide/run>
        Remote access <guide/remote>
        Background processes <guide/processes>
        The resident process <guide/resident>
        Pipelines <guide/ci>
        Research <guide/research>
        Review and patches <guide/review>
        Batches <guide/batch>
        Audit <guide/audit>
        Models <guide/models>
        API keys <guide/credentials>
        Trust <guide/trust>
        Python and JSON <guide/embedding>
        Editors <guide/editors>
    """,
    "Reference": """
        Configuration <reference/configuration>
        Policy <reference/policy>
        Known commands <reference/commands>
        Grants <reference/grants>
        The sandbox inside <reference/inside>
        Network <reference/network>
        Injected credentials <reference/broker>
        Containers <reference/containers>
        Platforms <reference/platforms>
        Records <reference/record>
        JSON <reference/json>
        Exit codes <reference/exit-codes>
    """,
    "Security": """
        Overview and reporting </SECURITY>
        Threats <security/threats>
        Tests of each threat <security/threat-tests>
        Limits <security/limits>
        Places of a secret <security/secrets>
        Processes that stay <security/processes>
        Escape attempts <security/escapes>
        Attacks of a hostile model <security/attacks>
        Injected text <security/injection>
        Findings <security/findings>
    """,
    "Internals": """
        Architecture <architecture>
        Glossary <glossary>
        Context of the model <internals/context>
        Failures of model servers <internals/failures>
        Numbers <internals/numbers>
    """,
    "Project": """
        README </README>
        Contributing </CONTRIBUTING>
        Changes </CHANGELOG>
    """,
}


def setup(app: Any) -> None:
    app.connect("source-read", add_contents)
    app.connect("build-finished", add_files)


def add_contents(app: Any, name: str, source: list[str]) -> None:
    """Append the contents of the side bar to the index, which other readers of the Markdown do not see."""
    if name == root_doc:
        for caption, pages in CONTENTS.items():
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{dedent(pages).strip()}\n```\n"


def add_files(app: Any, error: Exception | None) -> None:
    """Copy the images that HTML in the README names, and forward the root of the site to its index."""
    if error is None:
        out = Path(app.outdir)
        shutil.copytree(ROOT / "docs" / "images", out / "docs" / "images", dirs_exist_ok=True)
        target = f"{root_doc}.html"
        (out / "index.html").write_text(
            f'<!doctype html><title>{project}</title><meta http-equiv="refresh" content="0; url={target}">'
            f'<a href="{target}">{project}</a>\n',
            "utf-8",
        )
