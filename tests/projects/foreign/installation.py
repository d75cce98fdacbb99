"""A site in an environment of its own: installed, generated, migrated and served."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.projects.foreign.sites import HANDLERS, Site
from tests.servers import free_port, listens
from tests.systems.brokers.processes import Process, Processes

ROOT = Path(__file__).resolve().parents[3]
EXTRAS = "api,checkout,xlsx"
SERVERS = ("gunicorn", "uvicorn")
PIP_SECONDS = 600
COMMAND_SECONDS = 600
USER, PASSWORD = "walker", "a long password of the walk"
VERSIONS = """
import importlib.metadata, json
print(json.dumps({found.metadata["Name"]: found.version for found in importlib.metadata.distributions()}))
"""
#: A line of a log that says that something is wrong: an error of the site, or a warning of Python about our code.
TROUBLE = re.compile(
    r"^(?:ERROR|CRITICAL)\b|\[(?:ERROR|CRITICAL)\]|Traceback|payments_integration/\S+\.py:\d+: \w*Warning",
    re.MULTILINE,
)


def newest_python() -> str:
    """The newest Python of this machine that Django supports: PYTHON_NEWEST, or one that is found."""
    named = os.environ.get("PYTHON_NEWEST")
    if named:
        return named
    for version in ("3.14", "3.13", "3.12"):
        # A pyenv shim is found on the path even where its version is not chosen; take the interpreter itself.
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        candidates = [*sorted(pyenv.glob(f"{version}*/bin/python"), reverse=True), shutil.which(f"python{version}")]
        for candidate in candidates:
            if candidate and subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
                return str(candidate)
    return sys.executable


def build_wheel(folder: Path) -> Path:
    _pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (wheel,) = folder.glob("*.whl")
    return wheel


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--quiet", "--disable-pip-version-check", *arguments]
    _run(command, PIP_SECONDS)


def _run(command: list[str], seconds: float, **options: Any) -> subprocess.CompletedProcess[str]:
    """What it has printed. AssertionError with that if it fails or complains."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        **options,
    )
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    assert not TROUBLE.search(done.stderr), f"{' '.join(command)} complains:\n{done.stderr[-6000:]}"
    return done


class Installation:
    """A site that is installed and generated in ``folder``. Nothing of it runs yet."""

    def __init__(self, site: Site, folder: Path, wheel: Path, provider_url: str, webhook_secret: str) -> None:
        self.site = site
        self.project = folder / "project"
        self._environment = folder / "venv"
        self.port = free_port()
        self.processes = Processes(self.project)
        self.python = newest_python()
        self._install(wheel)
        self._generate(provider_url, webhook_secret)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def summary(self) -> str:
        """The versions that this site runs with."""
        python = _run(
            [self._binary("python"), "-c", "import sys; print(sys.version.split()[0])"], COMMAND_SECONDS
        ).stdout
        named = [re.split(r"[\[<>=]", package)[0] for package in self.site.packages]
        shown = ["Django", *named, *SERVERS, "payments-integration"]
        found = {name.lower(): version for name, version in self.versions.items()}
        return f"{self.site.name}: Python {python.strip()}, " + ", ".join(
            f"{name} {found[name.lower()]}" for name in shown
        )

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the project. AssertionError if it fails, or writes an error or a traceback to the log."""
        command = [self._binary("python"), "-W", "default", "manage.py", *arguments]
        return _run(command, COMMAND_SECONDS, cwd=self.project, env=self._variables())

    def ask(self, function: str) -> Any:
        """What a function of ``inside`` prints."""
        code = f"import inside; inside.{function}()"
        printed = self.manage("shell", "--verbosity", "0", "--no-imports", "--command", code)
        return json.loads(printed.stdout.splitlines()[-1])

    @contextmanager
    def serving(self, server: str, *, debug: bool = False) -> Iterator[None]:
        """The site runs under gunicorn (WSGI) or uvicorn (ASGI), and writes nothing wrong to its log."""
        bind = {
            "gunicorn": ["--no-control-socket", "--bind", f"127.0.0.1:{self.port}", "--threads", "4", "project.wsgi"],
            "uvicorn": ["--port", str(self.port), "--lifespan", "off", "project.asgi:application"],
        }
        command = [self._binary("python"), "-W", "default", "-m", server, *bind[server]]
        process = self.processes.start(server, command, self._variables(debug=debug))
        try:
            self.processes.wait(f"{server} to listen", lambda: self._listens(process))
            yield
        finally:
            process.stop()
        assert not TROUBLE.search(process.output()), f"{server} has logged:\n{process.output()[-8000:]}"

    def close(self) -> None:
        self.processes.stop()

    def _listens(self, process: Process) -> bool:
        assert process.is_running, process.output()
        return listens(self.port)

    def _install(self, wheel: Path) -> None:
        _run([self.python, "-m", "venv", "--without-pip", str(self._environment)], COMMAND_SECONDS)
        # Compiled when it is imported: most modules never are.
        install = ("--python", self._binary("python"), "install", "--no-compile")
        _pip(*install, *self.site.packages, *SERVERS)
        before = self._installed()
        _pip(*install, f"payments-integration[{EXTRAS}] @ {wheel.as_uri()}")
        self.versions = self._installed()
        changed = {name: (old, self.versions.get(name)) for name, old in before.items() if self.versions[name] != old}
        assert not changed, f"our wheel has replaced packages of the site: {changed}"

    def _installed(self) -> dict[str, str]:
        versions: dict[str, str] = json.loads(_run([self._binary("python"), "-c", VERSIONS], COMMAND_SECONDS).stdout)
        return versions

    def _generate(self, provider_url: str, webhook_secret: str) -> None:
        self.project.mkdir()
        program, *arguments = self.site.generator
        _run([self._binary(program), *arguments], COMMAND_SECONDS, cwd=self.project, env=self._variables())
        for name, text in self.site.additions.items():
            path = self.project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(text)
        shutil.copy(Path(__file__).with_name("inside.py"), self.project)
        (self.project / "shop").mkdir()
        (self.project / "shop" / "__init__.py").touch()
        (self.project / "shop" / "payment_handlers.py").write_text(HANDLERS)
        (self.project / ".env").write_text(
            f"PAYMENTS_BASE_URL={provider_url}\nPAYMENTS_API_KEY=sk_test_sandbox\n"
            f"PAYMENTS_WEBHOOK_SECRETS={webhook_secret}\nPAYMENTS_PROCESSING=inline\n"
            "PAYMENTS_ENCRYPTION_KEYS=a-long-random-text-of-the-tests-of-foreign-sites\n"
        )

    def _binary(self, name: str) -> str:
        return str(self._environment / "bin" / name)

    def _variables(self, *, debug: bool = False) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name in ("HOME", "LANG", "TMPDIR")}
        return {
            **kept,
            "PATH": f"{self._environment / 'bin'}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            "DJANGO_SETTINGS_MODULE": self.site.settings,
            "DJANGO_SUPERUSER_PASSWORD": PASSWORD,
            "SITE_DEBUG": str(debug).lower(),
        }
