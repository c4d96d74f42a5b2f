"""`agent bundle`: add, list, show, update and remove bundles with skills, commands, agents, hooks and servers."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from runner.agent.options import not_known
from runner.cli.gate import JSON, argument, option_before, print_notices, switch, valued
from runner.problems import Exit, Stopped, usage
from runner.stderr import say
from runner.text.json_line import json_line
from runner.text.sanitize import one_line, visible

if TYPE_CHECKING:
    from runner.bundles.bundle import Bundle
    from runner.bundles.pinned import Pin
    from runner.config.inventory import Inventory

bundle_app = typer.Typer(no_args_is_help=False, invoke_without_command=True, rich_markup_mode="markdown")


def _names(incomplete: str) -> list[str]:
    """Return the names of bundles for completion."""
    return [name for name in _pins()[0] if name.startswith(incomplete)]


SOURCE = Annotated[str, argument("SOURCE", "A folder, or URL@COMMIT with the full id of a commit.")]
NAME = Annotated[str, argument("NAME", "The name of a bundle.", complete=_names)]
ACCEPTED = Annotated[
    str | None, valued("--yes-hash", "SHA256", "Accept exactly the content with this hash, without a question.")
]
FOLDER = Annotated[str | None, valued("--folder", "FOLDER", "The folder of the bundle in the repository.")]


@bundle_app.callback()
def bundle(context: typer.Context, json: JSON = False) -> int:
    """Add, list, show, update and remove bundles.

    A bundle is a folder with skills, commands, sub-agents, hooks and tool servers (MCP), and a manifest `bundle.toml`.
    Plug-ins of Claude Code are read as they are. Everything in a bundle is shown before it is used, a private copy is
    pinned by its hash, and only that copy is used. `agent ci`, `agent batch` and every run without a user use no
    bundle.

    **Examples**

        agent bundle
        agent bundle add ~/src/my-tools
        agent bundle show ./my-tools
        agent bundle update my-tools
        agent bundle remove my-tools
    """
    if context.invoked_subcommand is None:
        return listing(json=json)
    if json:
        raise option_before(f"bundle {context.invoked_subcommand}")
    return Exit.DONE


@bundle_app.command("list")
def listing(json: JSON = False) -> int:
    """List the bundles, and whether each one can be used.

    A bundle whose copy is not what you accepted is `broken`, and is not used.

    **Examples**

        agent bundle list
        agent bundle list --json | jq -r 'select(.state == "broken") | .name'
    """
    from runner.bundles.pinned import any_bundles, installed

    if not any_bundles(os.environ):
        if not json:
            print("there are no bundles; `agent bundle add SOURCE` adds one")
        return Exit.DONE
    found = installed(os.environ)
    print_notices(found.notices)
    usable = {each.name: each for each in found.bundles}
    for pin in found.pins:
        if json:
            print(json_line(_as_json(pin, usable.get(pin.name))))
        else:
            state = _brief(usable[pin.name]) if pin.name in usable else "broken"
            print(visible(f"{pin.name:<16} {pin.sha256[:12]}  {state}  {_origin(pin)}", lines=False))
    if not found.pins and not json:
        print("there are no bundles; `agent bundle add SOURCE` adds one")
    return Exit.DONE


@bundle_app.command("show")
def show(
    name: Annotated[str, argument("NAME", "The name of a bundle, or a folder or URL@COMMIT.", complete=_names)],
    files: Annotated[bool, switch("--files", help="Print the complete files too.")] = False,
    folder: FOLDER = None,
    json: JSON = False,
) -> int:
    """Show everything that a bundle contains, and its hash. Changes nothing.

    A SOURCE that is not added yet can be shown too: a path with a slash, or URL@COMMIT.

    **Examples**

        agent bundle show my-tools
        agent bundle show --files ./my-tools
        agent bundle show ./my-tools --json | jq -r .sha256
    """
    from runner.bundles.described import bundle_rows, file_rows

    if "/" in name:
        pin, content = _read(name, folder)
        each = _described(pin, content)
    else:
        from runner.bundles.pinned import BundleStore

        pin = _pin(name)
        store = BundleStore(os.environ)
        content, each = store.content(pin), store.bundle(pin)
    if json:
        print(json_line(_as_json(pin, each)))
        return Exit.DONE
    print("\n".join([*bundle_rows(each), *(file_rows(content.entries, content.contents) if files else ())]))
    return Exit.DONE


@bundle_app.command("add")
def add(source: SOURCE, folder: FOLDER = None, accepted: ACCEPTED = None) -> int:
    """Show a bundle, ask, and add a private copy of it.

    SOURCE is a folder, or the address of a Git repository (https, ssh or file) with the full id of one commit. Nothing
    of the bundle runs while it is read. Without a terminal, `--yes-hash` must name the content.

    **Examples**

        agent bundle add ./my-tools
        agent bundle add ./my-tools --yes-hash HASH
    """
    from runner.bundles.described import bundle_rows
    from runner.bundles.pinned import BundleStore

    pin, content = _read(source, folder)
    if pin.name in _pins()[0]:
        why = "a bundle replaces no other one"
        fix = f"write `agent bundle update {pin.name} SOURCE`, or remove the other one"
        raise usage(f"there is a bundle `{pin.name}` already", why, fix)
    say("\n".join([*bundle_rows(_described(pin, content)), ""]))
    if not _accepts(f"add the bundle `{pin.name}` exactly as it is now?", pin, accepted):
        say("nothing was added")
        return Exit.DONE
    made = BundleStore(os.environ).keep(pin, content, None)
    print(f"added {pin.name}: {_brief(made)}; new sessions use it")
    return Exit.DONE


@bundle_app.command("update")
def update(
    name: NAME,
    source: Annotated[str | None, argument("SOURCE", "Another folder, or URL@COMMIT (default: the same one).")] = None,
    folder: FOLDER = None,
    accepted: ACCEPTED = None,
) -> int:
    """Show what has changed in the source of a bundle, ask, and use the new content.

    A bundle of a Git repository needs the new commit: URL@COMMIT. Without an answer the old content stays in use.

    **Examples**

        agent bundle update my-tools
    """
    from runner.bundles.bundle import Bundle
    from runner.bundles.described import change_rows
    from runner.bundles.manifest import BundleError
    from runner.bundles.pinned import BundleStore

    old = _pin(name)
    store = BundleStore(os.environ)
    given = source or (f"{old.source}@{old.commit}" if old.commit else old.source)
    pin, content = _read(given, folder if folder is not None else old.folder or None)
    if pin.name != name:
        fix = "add it as another bundle, or remove this one"
        raise usage(f"`{name}` was not updated", f"the source is the bundle `{pin.name}`", fix)
    before: Bundle | None = None
    texts: dict[str, bytes] = {}
    try:
        before, texts = store.bundle(old), dict(store.content(old).contents)
    except BundleError as error:
        say(f"note: the copy in use is broken: {error.problem.why}")
    if before is not None and old.sha256 == pin.sha256 and (old.source, old.commit) == (pin.source, pin.commit):
        print("nothing has changed")
        return Exit.DONE
    rows = change_rows(before, _described(pin, content), old.entries, pin.entries, (texts, content.contents))
    say("\n".join([*rows, ""]))
    if not _accepts(f"use this content of the bundle `{name}` from now on?", pin, accepted):
        say("nothing was changed")
        return Exit.DONE
    made = store.keep(pin, content, old)
    print(f"updated {name}: {_brief(made)}; new sessions use it")
    return Exit.DONE


@bundle_app.command("remove")
def remove(names: Annotated[list[str], argument("NAME", "The names of bundles.", complete=_names)]) -> int:
    """Remove bundles and their private copies.

    Their sources stay.

    **Examples**

        agent bundle remove my-tools
    """
    from runner.bundles.pinned import BundleStore

    for pin in [_pin(name) for name in names]:
        BundleStore(os.environ).remove(pin.name)
        print(f"removed {pin.name}")
    return Exit.DONE


def _pins() -> "tuple[dict[str, Pin], tuple[str, ...]]":
    from runner.bundles.pinned import BundleStore, any_bundles

    if not any_bundles(os.environ):
        return {}, ()
    pins, notices = BundleStore(os.environ).pins()
    return dict(pins), notices


def _pin(name: str) -> "Pin":
    pins, notices = _pins()
    print_notices(notices)
    if (pin := pins.get(name)) is not None:
        return pin
    what = f"there is no bundle `{one_line(name, 80)}`"
    raise not_known(what, "no bundle has this name", name, list(pins), "see `agent bundle`")


def _read(source: str, folder: str | None) -> "tuple[Pin, Inventory]":
    """Return what a source contains, and the pin that it would have. Raise BundleError or a usage error."""
    from runner.bundles.bundle import manifest_of
    from runner.bundles.git_source import commit_content, git_source, is_address
    from runner.bundles.pinned import Pin
    from runner.config.trust.discover import look_whole
    from runner.config.trust.session_check import now
    from runner.text.phrases import os_reason

    if is_address(source):
        of_git = git_source(source, folder or "")
        content = commit_content(of_git, os.environ)
        place, commit, inner, usual = of_git.url, of_git.commit, of_git.folder, of_git.name
    else:
        place = os.path.realpath(os.path.join(os.path.expanduser(source), folder or ""))
        commit, inner, usual = "", "", os.path.basename(place)
        try:
            content = look_whole(place)
        except (OSError, ValueError) as error:
            fix = "name a folder, or URL@COMMIT"
            raise usage(f"`{one_line(source, 200)}` cannot be read", os_reason(error), fix) from None
    manifest = manifest_of(content, usual)
    return Pin(manifest.name, manifest.version, place, commit, inner, now(), content.entries), content


def _described(pin: "Pin", content: "Inventory") -> "Bundle":
    from runner.bundles.bundle import bundle_of, manifest_of
    from runner.bundles.pinned import BundleStore

    place = BundleStore(os.environ).place(pin.name, pin.sha256)
    return bundle_of(content, manifest_of(content, pin.name), place)


def _accepts(question: str, pin: "Pin", accepted: str | None) -> bool:
    """Return True if the user accepts this content, by its hash or by an answer at the terminal."""
    from policy.model.verdict import Problem
    from runner.config.trust.prompt import typed_line
    from runner.gate.gate import is_unattended

    if accepted is not None:
        if accepted != pin.sha256:
            why = f"its hash is {pin.sha256}, and --yes-hash names another one"
            raise Stopped(Problem(f"`{pin.name}` was not accepted", why, "read what it contains now"), Exit.FAILED)
        return True
    if is_unattended(False):
        why = "there is no terminal to ask at"
        raise usage(f"`{pin.name}` was not accepted", why, f"add `--yes-hash {pin.sha256}` if you know this content")
    while True:
        try:
            said = typed_line(f"{question} [y]es, [N]o: ").strip().lower()
        except EOFError:
            return False
        if said in ("y", "yes"):
            return True
        if said in ("", "n", "no", "q", "quit"):
            return False


def _brief(each: "Bundle") -> str:
    from runner.text.phrases import many

    counts = (
        (len(each.servers), "tool server"), (len(each.agents), "sub-agent"), (len(each.skills), "skill"),
        (len(each.commands), "command"), (len(each.hooks), "hook"),
    )  # fmt: skip
    return ", ".join(many(count, noun) for count, noun in counts if count) or "nothing"


def _origin(pin: "Pin") -> str:
    return f"{pin.source}@{pin.commit[:12]}{f' {pin.folder}' if pin.folder else ''}" if pin.commit else pin.source


def _as_json(pin: "Pin", each: "Bundle | None") -> dict[str, object]:
    from runner.bundles.bundle import Bundle
    from runner.bundles.described import bundle_json

    empty = Bundle(pin.name, pin.version, "", pin.sha256, "")
    return {
        "name": pin.name,
        "state": "usable" if each is not None else "broken",
        "source": pin.source,
        "commit": pin.commit or None,
        "folder": pin.folder or None,
        "time": pin.time,
        "files": len(pin.entries),
        **bundle_json(each or empty),
    }
