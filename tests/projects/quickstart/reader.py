"""A reader of docs/quickstart.md, who types what it says, in its order, in an empty folder.

The reader changes three things: ``pip install`` is left out, because the environment has the package; ports are free
ones; and the webhook secret of a snippet is the one that was made up here.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers import free_port, listens, wait_until

ROOT = Path(__file__).resolve().parents[3]
#: Seconds for a command to end, or for a server to listen.
PATIENCE = 240.0


@dataclass(frozen=True)
class Block:
    """A block of code, with the last sentence above it and the heading that it is under."""

    language: str
    text: str
    lead: str
    heading: str

    @property
    def file(self) -> str:
        """The file that the sentence above names; empty if it names none."""
        found = re.findall(r"`([\w./]+\.py|\.env)`", self.lead)
        return found[-1] if found else ""

    @property
    def lines(self) -> list[str]:
        return [line for line in self.text.splitlines() if line.strip()]


def blocks_of(page: str) -> list[Block]:
    found, end = [], 0
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        lead = page[end : match.start()].strip().split("\n\n")[-1]
        heading = re.findall(r"^## (.+)$", page[: match.start()], re.MULTILINE)[-1]
        found.append(Block(match[1], match[2], lead, heading))
        end = match.end()
    return found


@dataclass
class Reader:
    folder: Path
    site: int = field(default_factory=free_port)
    provider: int = field(default_factory=free_port)
    shown: str = ""
    #: The environment's programs, and the path of modules that it gets.
    programs: Path = Path(sys.executable).parent
    modules: str = str(ROOT)
    patience: float = PATIENCE
    #: As PYTHONWARNINGS.
    warnings: str = "error"
    _servers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def follow(self, blocks: list[Block]) -> None:
        """Write each file and run each command. What the shell is given is the next block that names no file."""
        in_shell = False
        for block in blocks:
            if block.language == "console":
                for line in block.lines:
                    command = line.removeprefix("$ ")
                    in_shell = command == "python manage.py shell"
                    if not in_shell:
                        self._run(command)
            elif in_shell:
                self.shown = self._run("python manage.py shell", typed=block.text)
            else:
                self._edit(block)

    def close(self) -> None:
        for server in self._servers:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait(PATIENCE)

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()

    def _edit(self, block: Block) -> None:
        path = self.folder / block.file
        if block.lead.startswith("At the end of"):
            path.write_text(path.read_text() + block.text)
        else:
            assert block.lead.startswith("The whole of"), block.lead
            path.write_text(block.text)

    def _run(self, command: str, typed: str | None = None) -> str:
        if command.startswith("pip install "):
            return ""
        command = self._with_ports(command)
        log = self.folder / "log"
        if " runserver" in command or " payments_sandbox" in command:
            with log.open("ab") as output:
                server = subprocess.Popen(
                    [*command.split()], cwd=self.folder, env=self._environ, stdin=subprocess.DEVNULL,
                    stdout=output, stderr=output, start_new_session=True,
                )  # fmt: skip
            self._servers.append(server)
            port = self.site if " runserver" in command else self.provider
            wait_until(lambda: listens(port) or server.poll() is not None, self.patience, f"{command}; see {log}")
            assert server.poll() is None, log.read_text()
            return ""
        ended = subprocess.run(
            command, shell=True, cwd=self.folder, env=self._environ, input=typed, text=True, timeout=self.patience,
            capture_output=True, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, (command, ended.stdout, ended.stderr)
        for path in self.folder.glob(".env"):
            path.write_text(self._with_ports(path.read_text()))
        return ended.stdout

    def _with_ports(self, text: str) -> str:
        text = re.sub(r"runserver$", f"runserver {self.site}", text)
        text = re.sub(r"payments_sandbox ", f"payments_sandbox --port {self.provider} ", text)
        text = text.replace(":8000/", f":{self.site}/")
        return re.sub(r":84\d\d\b", f":{self.provider}", text)  # the command passes over busy ports

    @property
    def _environ(self) -> dict[str, str]:
        """That of a terminal with this environment active; the clone stands for the installed package."""
        ours = ("DJANGO_", "PAYMENTS_", "DATABASE_")
        rest = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        own = {"PYTHONPATH": self.modules, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": self.warnings}
        return {**rest, "PATH": path, **own}
