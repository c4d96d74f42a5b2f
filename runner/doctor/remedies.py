"""Remedies for missing features of a machine: packages by distribution, boot parameters and AppArmor profiles."""

from collections.abc import Mapping

# fmt: off
# The commands and package names of each family of distributions, by ID and ID_LIKE of os-release(5).
_INSTALL = {
    "debian": "sudo apt-get install",
    "fedora": "sudo dnf install",
    "rhel":   "sudo dnf install",
    "arch":   "sudo pacman -S",
    "suse":   "sudo zypper install",
    "alpine": "sudo apk add",
}
_NAMES: dict[str, dict[str, str]] = {
    "libseccomp": {"debian": "libseccomp2", "suse": "libseccomp2"},
    "rg":         dict.fromkeys(_INSTALL, "ripgrep"),
    "bwrap":      dict.fromkeys(_INSTALL, "bubblewrap"),
}
# fmt: on
_RELATED = {"ubuntu": "debian", "centos": "rhel", "opensuse": "suse", "sles": "suse"}


def package_command(wanted: str, release: Mapping[str, str]) -> str:
    """Return the command that installs `wanted` (a program, or `libseccomp`). `release` has the fields of
    os-release(5).
    """
    for word in (release.get("ID", ""), *release.get("ID_LIKE", "").split()):
        family = _RELATED.get(word.partition("-")[0], word.partition("-")[0])
        if family in _INSTALL:
            return f"{_INSTALL[family]} {_NAMES.get(wanted, {}).get(family, wanted)}"
    package = {"rg": "ripgrep", "bwrap": "bubblewrap"}.get(wanted, wanted)
    return f"install `{package}` with the package manager of this system"


def release_fields(text: str) -> dict[str, str]:
    """Return the fields of /etc/os-release. Values may be quoted as in a shell."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}


def apparmor_remedy(program: str) -> tuple[str, ...]:
    """Return lines that allow only `program` to create user namespaces under AppArmor 4 (Ubuntu 23.10 and newer)."""
    name = "ringfence-" + program.strip("/").replace("/", "-")
    return (
        f"sudo tee /etc/apparmor.d/{name} <<'EOF'",
        "abi <abi/4.0>,",
        "include <tunables/global>",
        f"profile {name} {program} flags=(unconfined) {{",
        "  userns,",
        "}",
        "EOF",
        f"sudo apparmor_parser -r /etc/apparmor.d/{name}",
    )


def landlock_remedy(known: str, modules: str) -> tuple[str, str]:
    """Return why Landlock is missing, and a remedy.

    `known` is `off` if the kernel supports Landlock but it is switched off, else `none`. `modules` is the content of
    /sys/kernel/security/lsm.
    """
    if known == "off":
        line = ",".join(["landlock", *(name for name in modules.split(",") if name and name != "landlock")])
        return (
            "the kernel contains it, but it was switched off at boot",
            f"add `lsm={line}` to the kernel's command line (GRUB_CMDLINE_LINUX in /etc/default/grub, then "
            "`sudo update-grub` or `sudo grub2-mkconfig -o /boot/grub2/grub.cfg`) and boot again",
        )
    return (
        "this kernel does not support it",
        "use a kernel 5.13 or newer with CONFIG_SECURITY_LANDLOCK, and boot it with lsm=landlock,...",
    )
