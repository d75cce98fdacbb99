"""Databases of more than one process: a standby that follows a primary, PgBouncer before a server, a Galera cluster,
and PostgreSQL under Patroni.

    python -m tests.clusters pgbouncer|galera -- pytest tests/unit

runs the command with ``TEST_DATABASE_URL``. It leads to PgBouncer in transaction mode, with a PostgreSQL behind it, or
to one node of a Galera cluster of three.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests import servers
from tests.servers import START_SECONDS, MariaDB, Postgres, Server, binary, free_port, listens, wait_until
from tests.systems.brokers.proxy import Proxy

#: The name under which a standby announces itself.
STANDBY = "standby"


class Primary(Postgres):
    """A PostgreSQL that a standby can follow."""

    def ask(self, sql: str, *, database: str = "postgres") -> Any:
        """The first value of the first row; None if there is no row."""
        import psycopg  # noqa: PLC0415  (without the driver the other servers still start)

        url = f"postgres://postgres@127.0.0.1:{self.port}/{database}"
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(sql)  # type: ignore[call-overload]
            row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None

    def wait_for_standby(self) -> None:
        """From now on a commit is confirmed when the standby has it as well."""
        self.ask(f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'")
        self.ask("SELECT pg_reload_conf()")
        state = "SELECT sync_state FROM pg_stat_replication"
        wait_until(lambda: self.ask(state) == "sync", 30, "the standby to be synchronous")

    def dump(self, database: str) -> Path:
        """A dump of a database, taken now; the file is gone with the server."""
        path = self.directory / "dump"
        self._run(self._binary("pg_dump"), *self._local(), "--format=custom", "-f", str(path), database)
        return path

    def restore(self, path: Path, database: str) -> None:
        """Make a database out of a dump."""
        self.ask(f"CREATE DATABASE {database}")
        self._run(self._binary("pg_restore"), *self._local(), "--exit-on-error", "-d", database, str(path))

    def _local(self) -> list[str]:
        return ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]

    def crash(self) -> None:
        """SIGKILL to the server and to every backend, which has a session of its own: the machine is gone."""
        self._kill_postgres()
        self.kill()

    def _kill_postgres(self) -> None:
        data = self.directory / "data"
        pid = int((data / "postmaster.pid").read_text().split()[0])
        if Path(f"/proc/{pid}/cwd").readlink() != data.resolve():
            return  # it has ended, and another process has its id
        # The parent first: it would start the server again.
        for process in (pid, *_children(pid)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


class Standby(Primary):
    """A copy of a primary that follows it. ``port``: where it finds the primary, which may be a proxy's."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._source = f"host=127.0.0.1 port={port} user=postgres application_name={STANDBY}"

    def prepare(self) -> None:
        data = self.directory / "data"
        options = ("-X", "stream", "--checkpoint=fast", "--no-sync")
        self._run(self._binary("pg_basebackup"), "-d", self._source, "-D", str(data), *options)
        (data / "standby.signal").touch()
        self._own(data / "standby.signal")

    def command(self) -> list[str]:
        return [*super().command(), "-c", f"primary_conninfo={self._source}"]

    def promote(self) -> None:
        """Become a primary, with all that has arrived. It waits for no standby itself."""
        self._run(self._binary("pg_ctl"), "promote", "-w", "-D", str(self.directory / "data"))


class PgBouncer(Server):
    """In transaction mode, in front of a PostgreSQL of its own, with few server connections that all clients share."""

    package = "pgbouncer"
    user = "postgres"

    def __init__(self, connections: int = 10) -> None:
        super().__init__()
        self.postgres = Postgres()
        self._connections = connections

    @property
    def url(self) -> str:
        # As docs/deployment.md has it.
        return f"postgres://postgres@127.0.0.1:{self.port}/payments?disable_server_side_cursors=true&conn_max_age=0"

    def prepare(self) -> None:
        self.postgres.__enter__()
        users, settings = self.directory / "users.txt", self.directory / "pgbouncer.ini"
        users.write_text('"postgres" ""\n')
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={self.postgres.port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {users}\npool_mode = transaction\n"
            f"max_client_conn = 500\ndefault_pool_size = {self._connections}\n"
            # What a test has set for its session, or has broken, does not reach the next one; DROP DATABASE waits 5 s
            # for idle connections.
            "server_reset_query = DISCARD ALL\nserver_reset_query_always = 1\n"
            "server_check_delay = 0\nserver_idle_timeout = 2\nlog_connections = 0\nlog_disconnections = 0\n"
        )
        for path in (users, settings):
            self._own(path)

    def command(self) -> list[str]:
        return [binary("pgbouncer", self.package), str(self.directory / "pgbouncer.ini")]

    def answers(self) -> bool:
        return listens(self.port)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.postgres.__exit__(*error)


class GaleraNode(MariaDB):
    """One node of a Galera cluster. It is ready when it has the data of the others and is part of the majority."""

    def __init__(self) -> None:
        super().__init__()
        #: Where the nodes find each other, and where this one gets what it missed.
        self.group_port, self._changes_port, self._copy_port = free_port(), free_port(), free_port()
        self._others: list[GaleraNode] = []

    def join(self, others: list[GaleraNode]) -> None:
        """Be part of the cluster of these nodes from the next start on; without any, begin one."""
        self._others = others

    def command(self) -> list[str]:
        begins = [] if self._others else ["--wsrep-new-cluster"]
        others = ",".join(f"127.0.0.1:{node.group_port}" for node in self._others)
        provider = [
            f"gmcast.listen_addr=tcp://127.0.0.1:{self.group_port}",
            f"ist.recv_addr=127.0.0.1:{self._changes_port}",
            "gcache.size=32M",
            # A machine that is busy with other tests must not seem to be a node that is gone.
            "evs.suspect_timeout=PT10S",
            "evs.inactive_timeout=PT30S",
        ]
        return [
            *super().command(),
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            "--wsrep-on=ON",
            "--wsrep-provider=/usr/lib/galera/libgalera_smm.so",
            f"--wsrep-provider-options={';'.join(provider)}",
            f"--wsrep-cluster-address=gcomm://{others}",
            f"--wsrep-node-address=127.0.0.1:{self.group_port}",
            f"--wsrep-node-name={self.port}",
            "--wsrep-sst-method=rsync",
            f"--wsrep-sst-receive-address=127.0.0.1:{self._copy_port}",
            *begins,
        ]

    def answers(self) -> bool:
        return super().answers() and self.ask("SHOW STATUS LIKE 'wsrep_ready'").endswith("ON")

    def ask(self, sql: str) -> str:
        """What the command-line client prints; empty after an error."""
        client = [binary("mariadb", self.package), "--no-defaults", "-u", "root", "-N", "-S"]
        command = [*client, str(self.directory / "sock"), "-e", sql]
        with suppress(subprocess.TimeoutExpired):
            return subprocess.run(command, capture_output=True, text=True, check=False, timeout=10).stdout.strip()
        return ""


@contextmanager
def galera(number: int = 3) -> Iterator[list[GaleraNode]]:
    """A cluster of so many nodes. Each can be killed, and joins again when it is started."""
    with ExitStack() as stack:
        nodes: list[GaleraNode] = []
        for _ in range(number):
            node = GaleraNode()
            node.join(nodes[:])
            nodes.append(stack.enter_context(node))
        for node in nodes:
            node.join([other for other in nodes if other is not node])
        yield nodes


class GaleraCluster(GaleraNode):
    """Three nodes, of which the tests use the first, as docs/scaling.md has it."""

    def __init__(self) -> None:
        super().__init__()
        self._followers = ExitStack()

    @property
    def url(self) -> str:
        return f"{super().url}?init_command=SET%20wsrep_sync_wait%20%3D%201"

    def start(self) -> None:
        super().start()
        nodes: list[GaleraNode] = [self]
        for _ in range(2):
            node = GaleraNode()
            node.join(nodes[:])
            nodes.append(self._followers.enter_context(node))

    def __exit__(self, *error: object) -> None:
        self._followers.close()
        super().__exit__(*error)


class Etcd(Server):
    """One node of etcd, in which the nodes of Patroni agree who leads."""

    package = "etcd-server"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        peer = f"http://127.0.0.1:{free_port()}"
        options = {
            "--data-dir": str(self.directory / "data"),
            "--listen-client-urls": self.url,
            "--advertise-client-urls": self.url,
            "--listen-peer-urls": peer,
            "--initial-advertise-peer-urls": peer,
            "--initial-cluster": f"default={peer}",
        }
        return [binary("etcd", self.package), *(part for option in options.items() for part in option)]

    def answers(self) -> bool:
        """It listens before it knows the version of its cluster, and Patroni cannot do without that."""
        return super().answers() and json.loads(_ask("GET", self.port, "/version"))["etcdcluster"] != "not_decided"


class PatroniNode(Primary):
    """One node of Patroni with its PostgreSQL. The first one that starts makes the database, others copy it."""

    def __init__(self, etcd: Etcd, name: str, *, synchronous: bool) -> None:
        super().__init__()
        self.name, self._synchronous, self._rest_port = name, synchronous, free_port()
        #: How it finds etcd, and how the other nodes find its PostgreSQL. Clients go to ``port``.
        self.to_etcd, self.to_postgres = Proxy(etcd.port), Proxy(self.port)

    def prepare(self) -> None:
        self.to_etcd.__enter__()
        self.to_postgres.__enter__()
        (self.directory / "patroni.yml").write_text(json.dumps(self._settings()))  # YAML reads JSON

    def _settings(self) -> dict[str, Any]:
        rest = f"127.0.0.1:{self._rest_port}"
        parameters = {"fsync": "off", "max_connections": 200, "unix_socket_directories": str(self.directory)}
        return {
            "scope": "payments",
            "name": self.name,
            "restapi": {"listen": rest, "connect_address": rest},
            # Without use_proxies it asks etcd for its address, and then goes there directly.
            "etcd3": {"host": f"127.0.0.1:{self.to_etcd.port}", "use_proxies": True},
            "bootstrap": {
                "dcs": {
                    # The shortest times that Patroni allows.
                    "ttl": 20,
                    "loop_wait": 1,
                    "retry_timeout": 3,
                    "synchronous_mode": self._synchronous,
                    "postgresql": {"use_pg_rewind": True, "parameters": {"wal_log_hints": "on"}},
                },
                "initdb": ["no-sync", {"encoding": "UTF8"}, {"auth": "trust"}],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.to_postgres.port}",
                "data_dir": str(self.directory / "data"),
                "bin_dir": str(Path(self._binary("postgres")).parent),
                "authentication": {"superuser": {"username": "postgres"}, "replication": {"username": "postgres"}},
                "parameters": parameters,
                "pg_hba": [f"host {databases} all 127.0.0.1/32 trust" for databases in ("all", "replication")],
            },
        }

    def environment(self) -> dict[str, str]:
        return {"HOME": str(self.directory)}  # a file with passwords

    def command(self) -> list[str]:
        return [binary("patroni", "patroni"), str(self.directory / "patroni.yml")]

    def kill(self) -> None:
        """SIGKILL to Patroni first, which would start PostgreSQL again."""
        super().kill()
        with suppress(OSError):  # it has not started, or has ended
            self._kill_postgres()

    def crash(self) -> None:
        self.kill()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for way in (self.to_etcd, self.to_postgres):
            way.__exit__(None, None, None)

    def leads(self) -> bool:
        """Whether it accepts writes."""
        import psycopg  # noqa: PLC0415

        with suppress(psycopg.OperationalError):
            return self.ask("SELECT pg_is_in_recovery()") is False
        return False

    def switch_over(self) -> None:
        """Give the lead to another node, in order."""
        _ask("POST", self._rest_port, "/switchover", {"leader": self.name})

    def is_followed(self, by: int) -> bool:
        """Whether it leads, so many nodes follow, and one of them may take over without loss if there has to be one.

        After a change of the leader it takes Patroni some seconds to name that one. Until then none takes over.
        """
        streaming = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
        if not self.leads() or self.ask(streaming) != by:
            return False
        roles = [member["role"] for member in json.loads(_ask("GET", self._rest_port, "/cluster"))["members"]]
        return not self._synchronous or "sync_standby" in roles

    def ahead_of(self, node: PatroniNode) -> int:
        """How many bytes this leader has written and that node has not."""
        lag = "pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn)::bigint"
        return int(self.ask(f"SELECT {lag} FROM pg_stat_replication WHERE application_name = '{node.name}'"))

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """It receives nothing from its leader meanwhile, and answers everyone."""
        receiver = self.ask("SELECT pid FROM pg_stat_wal_receiver")
        os.kill(receiver, signal.SIGSTOP)
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.kill(receiver, signal.SIGCONT)


class PatroniCluster:
    """Nodes that can be killed, cut off and started again."""

    def __init__(self, nodes: list[PatroniNode]) -> None:
        self.nodes = nodes

    def leader(self) -> PatroniNode:
        """The node that leads, as soon as all others follow it."""
        return self._first(lambda node: node.is_followed(len(self.nodes) - 1), "all nodes to follow one that leads")

    def successor(self, of: PatroniNode) -> PatroniNode:
        """Another node, as soon as it leads."""
        return self._first(lambda node: node is not of and node.leads(), "another node to lead")

    def laggard(self, leader: PatroniNode) -> PatroniNode:
        """A node that the leader does not wait for."""
        name = leader.ask("SELECT application_name FROM pg_stat_replication WHERE sync_state = 'async'")
        return next(node for node in self.nodes if node.name == name)

    def _first(self, condition: Callable[[PatroniNode], bool], what: str) -> PatroniNode:
        found: PatroniNode = wait_until(
            lambda: next((node for node in self.nodes if condition(node)), None), START_SECONDS, what
        )
        return found


@contextmanager
def patroni(*, synchronous: bool = True) -> Iterator[PatroniCluster]:
    """A cluster of three nodes. ``synchronous``: a commit is confirmed when a second one has it as well."""
    with ExitStack() as stack:
        etcd = stack.enter_context(Etcd())
        names = ("node0", "node1", "node2")
        nodes = [stack.enter_context(PatroniNode(etcd, name, synchronous=synchronous)) for name in names]
        yield PatroniCluster(nodes)


def _ask(method: str, port: int, path: str, body: dict[str, str] | None = None) -> str:
    with closing(HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)) as connection:
        connection.request(method, path, json.dumps(body) if body else None)
        answer = connection.getresponse()
        text = answer.read().decode()
    if answer.status != 200:
        raise RuntimeError(f"{path} answers {answer.status}: {text}")
    return text


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it has ended meanwhile
            found += map(int, task.read_text().split())
    return found


if __name__ == "__main__":
    servers.DATABASES["pgbouncer"] = ("TEST_PGBOUNCER_URL", PgBouncer)
    servers.DATABASES["galera"] = ("TEST_GALERA_URL", GaleraCluster)
    sys.exit(servers.main(sys.argv[1:]))
