"""The files whose content is trusted later: by an agent, by a build, by an editor or by a service.

THREAT T267: text from outside makes an agent write a line into such a file, which takes effect after the session.
"""

import re
from collections.abc import Mapping

_NAMES: Mapping[str, str] = {
    "instructions of agents": (
        "AGENTS.md AGENTS.override.md AGENT.md CLAUDE.md CLAUDE.local.md GEMINI.md QWEN.md .cursorrules "
        ".windsurfrules .clinerules .goosehints .roorules .rules .augment-guidelines .kilocoderules WARP.md CRUSH.md "
        "JULES.md CONVENTIONS.md replit.md copilot-instructions.md SKILL.md"
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
        "default.nix shell.nix pixi.toml pixi.lock uv.toml pdm.toml poetry.toml .condarc .gemrc build.zig.zon "
        "global.json dotnet-tools.json Brewfile rush.json devbox.json devbox.lock"
    ),
    "build or test settings": (
        "Makefile makefile GNUmakefile CMakeLists.txt CMakePresets.json meson.build BUILD BUILD.bazel WORKSPACE "
        "WORKSPACE.bazel MODULE.bazel .bazelrc justfile Justfile .justfile Taskfile.yml Taskfile.yaml Rakefile "
        "noxfile.py tasks.py dodo.py fabfile.py tox.ini conftest.py pytest.ini .pytest.ini .coveragerc build.rs "
        "build.xml gradlew gradlew.bat mvnw mvnw.cmd configure configure.ac turbo.json nx.json lerna.json .swcrc "
        ".babelrc Dockerfile Containerfile docker-compose.yml docker-compose.yaml compose.yml compose.yaml "
        "Vagrantfile Procfile skaffold.yaml Tiltfile .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs pip.conf .pypirc "
        "bunfig.toml .envrc .tool-versions mise.toml .mise.toml sitecustomize.py usercustomize.py tsconfig.json "
        "jsconfig.json Taskfile.dist.yml Taskfile.dist.yaml tox.toml pytest.toml .pytest.toml pylintrc .pylintrc "
        "pylintrc.toml .pylintrc.toml mypy.ini .mypy.ini .flake8 .rspec .rubocop.yml phpunit.xml phpunit.xml.dist "
        "phpstan.neon rust-toolchain rust-toolchain.toml .python-version .ruby-version .node-version "
        ".nvmrc .java-version .sdkmanrc .pnp.cjs .pnp.loader.mjs .pnpmfile.mjs build.zig build.sc build.mill "
        "SConstruct SConscript wscript pants.toml BUCK .buckconfig .bazeliskrc .bazelversion tools/bazel Earthfile "
        "docker-bake.hcl docker-bake.json Guardfile Dangerfile Fastfile Capfile Directory.Build.rsp .sbtopts .jvmopts "
        "ansible.cfg angular.json moon.yml serverless.yml wrangler.toml .config/nextest.toml"
    ),
    "a CI workflow": (
        ".gitlab-ci.yml .travis.yml azure-pipelines.yml Jenkinsfile bitbucket-pipelines.yml .drone.yml "
        ".appveyor.yml appveyor.yml cloudbuild.yaml buildspec.yml .cirrus.yml action.yml action.yaml "
        "dependabot.yml renovate.json netlify.toml vercel.json .gitlab-ci.yaml azure-pipelines.yaml .drone.yaml "
        ".drone.jsonnet .drone.star .woodpecker.yml .woodpecker.yaml .build.yml .zuul.yaml zuul.yaml codemagic.yaml "
        "screwdriver.yaml buildspec.yaml fly.toml render.yaml"
    ),
    "settings of Git": (
        ".gitattributes .gitmodules .gitconfig .lfsconfig .pre-commit-config.yaml lefthook.yml .lefthook.yml"
    ),
    "settings of an editor": ".editorconfig .exrc .vimrc .nvimrc .dir-locals.el .ycm_extra_conf.py",
}  # fmt: skip
_FOLDERS: Mapping[str, str] = {
    "settings of agents": (
        ".claude .codex .gemini .cursor .agents .agent .ringfence .opencode .windsurf .clinerules .roo .aider "
        ".continue .amazonq .kiro .junie .claude-plugin"
    ),
    "a CI workflow": (
        ".github/workflows .github/actions .circleci .buildkite .woodpecker .gitea .forgejo .gitlab .builds .semaphore "
        ".teamcity .tekton zuul.d"
    ),
    "settings of Git": ".husky .githooks",
    "settings of an editor": ".vscode .idea .zed .devcontainer .fleet .nvim",
    "build or test settings": ".cargo .mvn .yarn gradle/wrapper .bundle .moon .storybook fastlane",
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
        r"ecosystem)(?:[.-].*)?\.config\.[a-z]+|(?:karma|wdio|protractor|nightwatch|gatsby)(?:[.-].*)?[.-]conf(?:ig)?"
        r"\.[a-z]+|\.?(?:eslintrc|prettierrc|stylelintrc|mocharc|lintstagedrc|commitlintrc|babelrc|puppeteerrc|swcrc"
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
    if found := _BY_NAME.get(names[-1]) or _BY_NAME.get("/".join(names[-2:])):
        return found
    for start in range(len(names) - 1):
        for length in (1, 2):
            if found := _BY_FOLDER.get(tuple(names[start : start + length])):
                return found
    tails = (names[-1], "/".join(names[-2:]))
    return next((what for pattern, what in _BY_PATTERN for tail in tails if pattern.fullmatch(tail)), "")


def trusted_link(path: str, workspace: str) -> str:
    """Return what a link at the absolute `path` is trusted as: as a file, or as a folder or the part of one with
    trusted files, which would then be those behind the link.
    """
    root = workspace.rstrip("/") + "/"
    last = tuple(name.lower() for name in path.removeprefix(root).split("/")[-2:])
    found = trusted_later(path, workspace)
    if found or not path.startswith(root):
        return found
    return next((what for folder, what in _BY_FOLDER.items() if folder[:1] == last[-1:] or folder == last), "")
