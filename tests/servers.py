"""Servers for the tests that need one: named by an environment variable, or started from the installed binaries.

    python -m tests.servers postgres -- pytest tests/unit

runs the command with ``TEST_DATABASE_URL`` set to the server that ``TEST_POSTGRES_URL`` names, or to one of its own:
on a free port, in a temporary directory, and gone afterwards.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

START_SECONDS = 90.0
SERVER_PORTS = range(10_000, 32_768)
STOP_SECONDS = 20.0


class NotInstalled(Exception):
    """A binary that is needed is not on this machine."""


class Server(ABC):
    """A server process in a directory of its own. It listens on loopback only."""

    #: Debian's package that brings the binaries.
    package = ""
    #: The user that it runs as where we are root and it refuses to be.
    user = ""

    def __init__(self) -> None:
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix=f"pi-{type(self).__name__.lower()}-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Where a client finds it."""

    @abstractmethod
    def command(self) -> list[str]:
        """What starts it in the foreground."""

    def environment(self) -> dict[str, str]:
        return {}

    def prepare(self) -> None:  # noqa: B027  (most need nothing)
        """Before the first start."""

    def answers(self) -> bool:
        """Whether it serves already."""
        return listens(self.port)

    def __enter__(self) -> Self:
        try:
            self._own(self.directory)
            self.prepare()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> None:
        """Start, with the data that is there, and wait until it answers."""
        path = self.directory / "log"
        with path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._as_user(), *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={**os.environ, **self.environment()},
                start_new_session=True,
            )
        try:
            wait_until(self.answers, START_SECONDS, f"{type(self).__name__} to answer")
        except AssertionError as error:
            # The directory is removed.
            raise AssertionError(f"{error}; it wrote last: {path.read_text(errors='replace')[-2000:]}") from None

    def stop(self) -> None:
        """End it in order; the data stays."""
        self._signal(signal.SIGTERM)
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to it and its children."""
        self.resume()
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(STOP_SECONDS)
            self._process = None

    def pause(self) -> None:
        """It keeps its connections and accepts new ones, and is silent."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _as_user(self) -> list[str]:
        if not self.user or os.geteuid() != 0:
            return []
        return ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--init-groups", "--"]

    def _own(self, path: Path) -> None:
        if self.user and os.geteuid() == 0:
            shutil.chown(path, self.user, self.user)

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            [*self._as_user(), *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=self.directory,
            env={**os.environ, **self.environment()},
            timeout=START_SECONDS,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {(done.stderr or done.stdout).decode(errors='replace')[-2000:]}")


class Postgres(Server):
    package = "postgresql"
    user = "postgres"

    @property
    def url(self) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/payments"

    def prepare(self) -> None:
        data = str(self.directory / "data")
        self._run(self._binary("initdb"), "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-sync")

    def command(self) -> list[str]:
        # A test's database need not survive the machine; it does survive a kill of its own processes.
        options = ("fsync=off", "full_page_writes=off", "listen_addresses=127.0.0.1", "max_connections=200")
        return [
            self._binary("postgres"),
            *("-D", str(self.directory / "data"), "-p", str(self.port), "-k", str(self.directory)),
            *(part for option in options for part in ("-c", option)),
        ]

    def answers(self) -> bool:
        ready = [self._binary("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0

    def stop(self) -> None:
        self._signal(signal.SIGINT)  # SIGTERM would wait for the clients to leave
        super().stop()

    def _binary(self, name: str) -> str:
        debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]))
        return str(debian[-1]) if debian else binary(name, self.package)


class MariaDB(Server):
    package = "mariadb-server"
    user = "mysql"

    @property
    def url(self) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/payments"

    def prepare(self) -> None:
        install = binary("mariadb-install-db", self.package)
        data = f"--datadir={self.directory / 'data'}"
        self._run(install, "--no-defaults", data, "--auth-root-authentication-method=normal", "--skip-test-db")

    def command(self) -> list[str]:
        return [
            binary("mariadbd", self.package),
            "--no-defaults",
            f"--datadir={self.directory / 'data'}",
            f"--socket={self.directory / 'sock'}",
            f"--pid-file={self.directory / 'pid'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-buffer-pool-size=256M",
            "--character-set-server=utf8mb4",
        ]


class Redis(Server):
    package = "redis-server"

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        options = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory))
        return [binary("redis-server", self.package), *options, "--save", "", "--appendonly", "no"]

    def wipe(self) -> None:
        """It keeps nothing on disk: a new start is an empty one."""
        self.kill()
        self.start()


class RabbitMQ(Server):
    package = "rabbitmq-server"

    def __init__(self) -> None:
        super().__init__()
        self._ports = {"dist": free_port(), "epmd": free_port()}
        self._mapper: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.directory),  # the cookie
            "ERL_EPMD_PORT": str(self._ports["epmd"]),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._ports["dist"]),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.directory / "logs"),
            "RABBITMQ_PID_FILE": str(self.directory / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq"),
        }

    def prepare(self) -> None:
        (self.directory / "plugins").write_text("[].\n")
        (self.directory / "rabbitmq.conf").write_text("disk_free_limit.absolute = 1MB\n")
        # Erlang's port mapper: the broker would leave one behind as a daemon of its own.
        self._mapper = subprocess.Popen(
            [binary("epmd", "erlang-base")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self.environment()},
        )
        wait_until(lambda: listens(self._ports["epmd"]), START_SECONDS, "epmd to answer")

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait(STOP_SECONDS)

    def command(self) -> list[str]:
        # Not the wrapper on the path: that one insists on Debian's own user and directories.
        debian = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
        return [str(debian) if debian.exists() else binary("rabbitmq-server", self.package)]

    def answers(self) -> bool:
        """Ports open before the broker serves: ask it for its greeting."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.settimeout(2)
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return bool(connection.recv(7))
        except OSError:
            return False

    def wipe(self) -> None:
        self.kill()
        shutil.rmtree(self.directory / "mnesia", ignore_errors=True)
        self.start()


DATABASES: dict[str, tuple[str, type[Server]]] = {
    "postgres": ("TEST_POSTGRES_URL", Postgres),
    "mariadb": ("TEST_MARIADB_URL", MariaDB),
}


@contextmanager
def database(name: str) -> Iterator[str]:
    """The URL of a database server, "postgres" or "mariadb"."""
    variable, server = DATABASES[name]
    if named := os.environ.get(variable):
        yield named
        return
    with server() as started:
        yield started.url


def binary(name: str, package: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise NotInstalled(f"{name} is not installed; Debian's package {package} brings it")
    return found


def free_port() -> int:
    """A port that nothing listens on, below the ports that the system gives to outgoing connections.

    One of those is often in use by a connection when the server that it was meant for starts. The choice is really
    random: the processes of pytest-xdist share a seed.
    """
    while True:
        port = secrets.choice(SERVER_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(condition: Callable[[], Any], seconds: float, what: str, *, pause: float = 0.05) -> Any:
    """The first true result of ``condition``; AssertionError naming ``what`` after ``seconds``."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds:g} s for {what}")
        time.sleep(pause)
    return result


def main(arguments: list[str]) -> int:
    """``postgres|mariadb -- command …``: run a command against that database; returns its exit code."""
    if len(arguments) < 3 or arguments[0] not in DATABASES or arguments[1] != "--":
        print(f"Usage: python -m tests.servers {'|'.join(DATABASES)} -- command …", file=sys.stderr)
        return 2
    # A stop of the target is a stop of the server.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with database(arguments[0]) as url:
            return _run(arguments[2:], url)
    except NotInstalled as error:
        variable, _ = DATABASES[arguments[0]]
        print(f"{error}. Or name a server: {variable}=…", file=sys.stderr)
        return 1


def _run(command: list[str], url: str) -> int:
    """Run it to its end. A stop is passed on, so that it can end in order, before the server does."""
    stops: list[int] = []
    # Only noted: a signal that comes just before a wait without end would be handled after it.
    signal.signal(signal.SIGTERM, lambda number, _: stops.append(number))
    with subprocess.Popen(command, env={**os.environ, "TEST_DATABASE_URL": url}) as process:
        # A terminal sends Ctrl-C to the command as well.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(0.2)
            if stops:
                process.terminate()
                stops.clear()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
