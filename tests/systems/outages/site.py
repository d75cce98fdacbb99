"""The merchant's site of ``tests.systems.brokers`` on any database, started by a command instead of by pytest."""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from example_project.demo.processes import STOP_SIGNALS, raise_on_signals
from tests import settings as test_settings
from tests.servers import NotInstalled, Redis

if TYPE_CHECKING:
    from tests.systems.brokers.installation import Installation

#: A request that is cut off by an outage is taken up again 35 seconds later, and not after a minute.
CHANGES = {"PAYMENTS": {"REQUEST_DEADLINE": 5}}
#: Every how many seconds beat runs each task: as often as keeps a proof short.
SCHEDULE = {"process_events": 1.0, "resume_operations": 1.0, "reconcile_events": 3.0, "reconcile_objects": 3.0}


def command(run: Callable[[argparse.Namespace], bool], description: str | None, *more: tuple[str, str]) -> int:
    """The exit code of a proof. ``more``: its own switches and their help."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of load before the event, and as many after it")
    parser.add_argument("--merchants", type=int, default=4, help="threads that take payments, pay out and refund")
    for name, explanation in more:
        parser.add_argument(name, action="store_true", help=explanation)
    options = parser.parse_args()
    faulthandler.enable()
    raise_on_signals()
    try:
        is_true = run(options)
    except NotInstalled as error:
        print(error, file=sys.stderr)
        return 1
    print("nothing lost, nothing doubled" if is_true else "BROKEN")
    return 0 if is_true else 1


@contextmanager
def site_on(url: str, redis: Redis, **settings: Any) -> Iterator[Installation]:
    """The database migrated, the provider running; the processes are for the caller to start.

    This process uses the database too, as a merchant's own code does. ``settings``: what the site has different.
    """
    changes = {**CHANGES, **settings}
    os.environ.update(
        DJANGO_SETTINGS_MODULE="tests.systems.brokers.settings",
        DEBUG="false",
        SECRET_KEY=test_settings.SECRET_KEY,
        ALLOWED_HOSTS="127.0.0.1",
        DATABASE_URL=url,
        BROKER_URL=redis.url,
        PAYMENTS_PROCESSING="celery",
        LOG_LEVEL="CRITICAL",
        TEST_CHANGES=json.dumps(changes),
    )
    import django

    django.setup()
    from django.core.management import call_command

    from tests.systems.brokers.installation import Installation

    call_command("migrate", run_syncdb=True, verbosity=0)
    with tempfile.TemporaryDirectory(prefix="pi-outage-") as folder:
        installation = Installation(Path(folder), redis, url, changes=changes)
        engine = installation.provider.engine
        engine.auto_progress = 0.5
        with installation.provider:
            try:
                yield installation
            finally:
                # A second Ctrl-C must leave no process behind.
                for number in STOP_SIGNALS:
                    signal.signal(number, signal.SIG_IGN)
                installation.close()


def start(installation: Installation) -> None:
    """The site, a worker and beat."""
    installation.site()
    installation.worker()
    installation.beat(**SCHEDULE)
