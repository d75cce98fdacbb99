"""A streaming replica for reports, and a router that sends every read to it. It stands still while money moves.

    python -m tests.systems.outages.replica [--seconds 20] [--merchants 4]

The example project runs under gunicorn with a Celery worker and beat. The replica stops to replay, so it shows an old
state. The app must not notice: it reads where it writes, and opens no connection to the replica. Reports name the
replica, and see the old state until it replays again.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import environ

from tests.clusters import Primary, Standby
from tests.servers import Redis, wait_until
from tests.systems.outages.site import command, site_on, start

PAGES = ("admin/payments_integration/payment/", "admin/payments_integration/refund/", "payments/api/payments/")


class Replica(Standby):
    """It writes down who connects to it, and cancels no report to catch up."""

    def command(self) -> list[str]:
        return [*super().command(), "-c", "log_connections=on", "-c", "max_standby_streaming_delay=-1"]

    def visits(self) -> int:
        return (self.directory / "log").read_text().count("database=payments")


def replica(options: argparse.Namespace) -> bool:
    with Primary() as primary, Replica(primary.port) as standby, Redis() as redis:
        primary.ask("CREATE DATABASE payments")
        url = f"postgres://postgres@127.0.0.1:{primary.port}/payments?conn_max_age=60"
        databases = {
            alias: environ.Env.db_url_config(url.replace(str(primary.port), str(server.port)))
            for alias, server in (("default", primary), ("replica", standby))
        }
        routers = ["tests.systems.outages.router.Replica"]
        with site_on(url, redis, DATABASES=databases, DATABASE_ROUTERS=routers) as installation:
            from django.contrib.auth import get_user_model
            from django.test import Client

            from payments_integration.models import Payment, Refund
            from tests.systems.outages.traffic import Traffic, show_problems

            def shown(alias: str) -> list[list[tuple[Any, ...]]]:
                rows = (model.objects.using(alias).order_by("pk") for model in (Payment, Refund))
                return [list(each.values_list("pk", "status", "state_at")) for each in rows]

            start(installation)
            client = Client()
            client.force_login(get_user_model()._default_manager.create_superuser("ana"))
            with Traffic(installation, options.merchants) as traffic:
                time.sleep(2)
                standby.ask("SELECT pg_wal_replay_pause()")
                wait_until(lambda: standby.ask("SELECT pg_get_wal_replay_pause_state()") == "paused", 30, "the pause")
                before, visits = Payment.objects.using("replica").count(), standby.visits()
                time.sleep(options.seconds)
                traffic.end()
                problems = traffic.judge()
                for page in PAGES:
                    status = client.get(f"/{page}", headers={"host": "127.0.0.1"}).status_code
                    problems += [f"{page} answers {status}"] if status != 200 else []
                traffic.show()
            if standby.visits() != visits:
                problems.append(f"the replica was asked {standby.visits() - visits} times")
            behind, all_payments = Payment.objects.using("replica").count(), Payment.objects.count()
            if behind != before:
                problems.append(f"the replica did not stand still: {before} payments, then {behind}")
            standby.ask("SELECT pg_wal_replay_resume()")
            began = time.monotonic()
            # The worker still writes: a pass may bring a row a later state at any time.
            wait_until(lambda: shown("replica") == shown("default"), 30, "the replica to show what the primary has")
            caught_up = time.monotonic() - began
            print(f"payments on the replica      {behind:>8}  while it stood still, of {all_payments}")
            print(f"it caught up within          {caught_up:>8.1f}  s")
            return show_problems(problems)


if __name__ == "__main__":
    sys.exit(command(replica, __doc__))
