"""The files whose content is trusted later: by an agent, by a build, by an editor or by a service.

THREAT T267: text from outside makes an agent write a line into such a file, which takes effect after the session.
"""

import re
from collections.abc import Mapping

_NAMES: Mapping[str, str] = {
    "instructions of agents": (
        "AGENTS.md AGENTS.override.md AGENT.md CLAUDE.md CLAUDE.local.md GEMINI.md QWEN.md .cursorrules "
        ".windsurfrules .clinerules .goosehints .roorules copilot-instructions.md SKILL.md"
    ),
    "settings of agents": ".mcp.json mcp.json .aider.conf.yml opencode.json opencode.jsonc gemini-extension.json",
    "a list of dependencies": (
        "package.json package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml pnpm-workspace.yaml bun.lock "
        "bun.lockb deno.json deno.jsonc deno.lock bower.json pyproject.toml setup.py setup.cfg Pipfile "
        "Pipfile.lock poetry.lock uv.lock pdm.lock pylock.toml environment.yml environment.yaml conda-lock.yml "
        "Cargo.toml Cargo.lock go.mod go.sum go.work go.work.sum Gemfile Gemfile.lock composer.json composer.lock "
        "pom.xml build.gradle build.gradle.kts settings.gradle settings.gradle.kts gradle.properties "
        "libs.versions.toml packages.config packages.lock.json Directory.Build.props Directory.Build.targets "
        "Directory.Packages.props NuGet.config nuget.config mix.exs mix.lock pubspec.yaml pubspec.lock "
        "Package.swift Package.resolved rebar.config rebar.lock stack.yaml cabal.project shard.yml conanfile.txt "
        "conanfile.py vcpkg.json deps.edn project.clj build.sbt Podfile Podfile.lock Cartfile flake.nix flake.lock "
        "default.nix shell.nix"
    ),
    "build or test settings": (
        "Makefile makefile GNUmakefile CMakeLists.txt CMakePresets.json meson.build BUILD BUILD.bazel WORKSPACE "
        "WORKSPACE.bazel MODULE.bazel .bazelrc justfile Justfile .justfile Taskfile.yml Taskfile.yaml Rakefile "
        "noxfile.py tasks.py dodo.py fabfile.py tox.ini conftest.py pytest.ini .pytest.ini .coveragerc build.rs "
        "build.xml gradlew gradlew.bat mvnw mvnw.cmd configure configure.ac turbo.json nx.json lerna.json .swcrc "
        ".babelrc Dockerfile Containerfile docker-compose.yml docker-compose.yaml compose.yml compose.yaml "
        "Vagrantfile Procfile skaffold.yaml Tiltfile .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs pip.conf .pypirc "
        "bunfig.toml .envrc .tool-versions mise.toml .mise.toml sitecustomize.py usercustomize.py tsconfig.json "
        "jsconfig.json"
    ),
    "a CI workflow": (
        ".gitlab-ci.yml .travis.yml azure-pipelines.yml Jenkinsfile bitbucket-pipelines.yml .drone.yml "
        ".appveyor.yml appveyor.yml cloudbuild.yaml buildspec.yml .cirrus.yml action.yml action.yaml "
        "dependabot.yml renovate.json netlify.toml vercel.json"
    ),
    "settings of Git": ".gitattributes .gitmodules .gitconfig .pre-commit-config.yaml lefthook.yml .lefthook.yml",
    "settings of an editor": ".editorconfig .exrc .vimrc .nvimrc .dir-locals.el .ycm_extra_conf.py",
}  # fmt: skip
_FOLDERS: Mapping[str, str] = {
    "settings of agents": (
        ".claude .codex .gemini .cursor .agents .agent .ringfence .opencode .windsurf .clinerules .roo .aider "
        ".continue .amazonq .kiro .junie .claude-plugin"
    ),
    "a CI workflow": ".github/workflows .github/actions .circleci .buildkite .woodpecker .gitea .forgejo .gitlab",
    "settings of Git": ".husky .githooks",
    "settings of an editor": ".vscode .idea .zed .devcontainer .fleet .nvim",
    "build or test settings": ".cargo .mvn .yarn gradle/wrapper",
}
_PATTERNS: Mapping[str, str] = {
    "instructions of agents": r".*\.instructions\.md|.*\.prompt\.md|.*\.mdc",
    "a list of dependencies": (
        r"(?:.*[-_.])?requirements(?:[-_.].*)?\.(?:txt|in)|requirements/.*\.(?:txt|in)|(?:.*[-_.])?constraints(?:[-_.].*)?"
        r"\.txt|.*\.gemspec|.*\.(?:cs|fs|vb|vcx)proj|.*\.cabal|.*\.podspec|.*\.nimble|.*\.rockspec|.*\.sln"
    ),
    "build or test settings": (
        r"(?:jest|vitest|vite|webpack|rollup|babel|playwright|cypress|karma|eslint|prettier|postcss|tailwind|next|nuxt|svelte|"
        r"astro|metro|esbuild|tsup|rspack|ava|stylelint|commitlint|lint-staged|wdio|gatsby|remix|angular|nodemon|"
        r"ecosystem)(?:[.-].*)?\.config\.[a-z]+|\.?(?:eslintrc|prettierrc|stylelintrc|mocharc|lintstagedrc|commitlintrc"
        r"|nycrc|releaserc)(?:\..*)?|[Gg]ulpfile\..*|[Gg]runtfile\..*|Dockerfile\..*|.*\.dockerfile|docker-compose\..*"
        r"|compose\..*\.ya?ml|.*\.mk|.*\.cmake|.*\.pth|tsconfig\..*\.json|.*\.bazel|.*\.bzl|.*\.gradle(?:\.kts)?"
    ),
    "settings of an editor": r".*\.code-workspace|.*\.sublime-project",
}  # fmt: skip

_BY_NAME = {name.lower(): what for what, names in _NAMES.items() for name in names.split()}
_BY_FOLDER = {tuple(folder.split("/")): what for what, folders in _FOLDERS.items() for folder in folders.split()}
_BY_PATTERN = tuple((re.compile(pattern, re.IGNORECASE), what) for what, pattern in _PATTERNS.items())


def trusted_later(path: str, workspace: str) -> str:
    """Return what the file at the absolute `path` is trusted as, such as `a CI workflow`. Return an empty text for an
    ordinary file, and for a file outside of `workspace`, which other rules protect.

    Case does not count, because some disks do not tell names apart by case.
    """
    root = workspace.rstrip("/") + "/"
    if not path.startswith(root):
        return ""
    names = [name.lower() for name in path[len(root) :].split("/")]
    if found := _BY_NAME.get(names[-1]):
        return found
    for start in range(len(names) - 1):
        for length in (1, 2):
            if found := _BY_FOLDER.get(tuple(names[start : start + length])):
                return found
    tails = (names[-1], "/".join(names[-2:]))
    return next((what for pattern, what in _BY_PATTERN for tail in tails if pattern.fullmatch(tail)), "")
