"""A database that processes share, the brokers, and the installation under test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
import pytest
from django.core.management import call_command
from django.db import connections
from kombu import Connection

from tests.servers import Postgres, RabbitMQ, Redis, Server
from tests.systems.brokers.installation import Installation

NAME = f"test_payments_brokers_{os.getpid()}"
#: The queue of an account that has one of its own.
APART = "payments-second"


@pytest.fixture(scope="package", autouse=True)
def _orderly_end() -> Iterator[None]:
    """Who stops the tests stops what they have started."""
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.exit("terminated", returncode=143))
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="package")
def database_url(django_db_blocker: Any) -> Iterator[str]:
    """A database of our own on the server of TEST_DATABASE_URL, or on a PostgreSQL that is started here."""
    with ExitStack() as stack:
        url = os.environ.get("TEST_DATABASE_URL", "")
        if not url or url.startswith("sqlite"):
            url = stack.enter_context(Postgres()).url
        config = {**environ.Env.db_url_config(url), "TEST": {"NAME": NAME}}
        if config["ENGINE"] == "django.db.backends.mysql":
            config["OPTIONS"] = {"charset": "utf8mb4"}
        before = connections.settings["default"], connections["default"]
        stack.enter_context(django_db_blocker.unblock())
        connections.settings["default"] = connections.configure_settings({"default": config})["default"]
        connections["default"] = connections.create_connection("default")
        try:
            connections["default"].creation.create_test_db(verbosity=0, autoclobber=True)
            yield urlsplit(url)._replace(path=f"/{NAME}").geturl()
        finally:
            connections["default"].creation.destroy_test_db(config["NAME"], verbosity=0)
            connections["default"].close()
            connections.settings["default"], connections["default"] = before


@pytest.fixture(scope="package")
def rabbitmq() -> Iterator[RabbitMQ]:
    """It takes seconds to start, so the tests share one; each finds it running and empty."""
    with RabbitMQ() as server:
        yield server


@pytest.fixture(params=["redis", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> Iterator[Server]:
    if request.param == "redis":
        with Redis() as server:
            yield server
        return
    server = request.getfixturevalue("rabbitmq")
    with Connection(server.url) as connection:
        for queue in ("celery", APART):
            connection.default_channel.queue_delete(queue)
    yield server
    server.resume()
    if not server.answers():
        server.kill()
        server.start()


@pytest.fixture
def installation(
    broker: Server, database_url: str, django_db_blocker: Any, tmp_path: Path, woken: list[str]
) -> Iterator[Installation]:
    """Nothing runs yet but the broker, the database and the provider. This process itself works nothing off."""
    with django_db_blocker.unblock():
        installation = Installation(tmp_path, broker, database_url)
        try:
            with installation.provider:
                try:
                    yield installation
                finally:
                    broker.resume()  # so that clients can close their connections
                    installation.close()
        finally:
            call_command("flush", interactive=False, inhibit_post_migrate=True, verbosity=0)
