"""A new version of the app goes out under load: a migration, then new processes beside old ones.

    python -m tests.systems.outages.upgrade [--seconds 20] [--merchants 4]

The example project runs under gunicorn with a Celery worker and beat. Merchants take payments, pay out and refund. The
steps are those of docs/upgrading.md: migrate while all processes run the old code; restart worker and beat, each asked
to end; reload gunicorn. The next version has a column more, so that the events show which code has stored them.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time

from tests.clusters import Primary
from tests.servers import Redis
from tests.systems.outages.site import SCHEDULE, command, site_on

NEXT = "tests.systems.outages.next_version"
#: A worker ends the task that it is in: TimeoutStopSec of docs/deployment.md.
STOP_SECONDS = 150.0


def upgrade(options: argparse.Namespace) -> bool:
    with Primary() as primary, Redis() as redis:
        primary.ask("CREATE DATABASE payments")
        url = f"postgres://postgres@127.0.0.1:{primary.port}/payments?conn_max_age=60"
        with site_on(url, redis) as installation:
            from django.conf import settings

            from tests.systems.brokers.installation import ROOT
            from tests.systems.outages.traffic import Traffic, show_problems

            site, worker, beat = installation.site(), installation.worker(), installation.beat(**SCHEDULE)
            old = site.children()
            with Traffic(installation, options.merchants) as traffic:
                time.sleep(options.seconds)
                # The new code is installed: a process that starts from now on runs it.
                apps = json.dumps({"INSTALLED_APPS": [*settings.INSTALLED_APPS, NEXT]})
                (installation.folder / "changes.json").write_text(apps)
                began = time.monotonic()
                migrate = [sys.executable, str(ROOT / "manage.py"), "migrate", "--verbosity", "0"]
                subprocess.run(
                    migrate, env=installation.environ(TEST_SCHEDULE=",".join(SCHEDULE)), check=True, timeout=120
                )
                migrated = time.monotonic() - began
                time.sleep(options.seconds / 2)
                began = time.monotonic()
                for process in (worker, beat):
                    process.send(signal.SIGTERM)
                    process.popen.wait(STOP_SECONDS)
                installation.worker()
                installation.beat(**SCHEDULE)
                restarted = time.monotonic() - began
                time.sleep(options.seconds / 2)
                site.send(signal.SIGHUP)
                installation.wait("the old site to be gone", lambda: not set(old) & set(site.children()))
                time.sleep(options.seconds)
                problems = traffic.conclude()
            by = {
                who: primary.ask(
                    f"SELECT count(*) FROM payments_integration_event WHERE stored_by = '{who}'", database="payments"
                )
                for who in ("old", "new")
            }
            problems += ["the new code has stored nothing"] if not by["new"] else []
            statuses = {entry["status"] for entry in installation.provider.engine.deliveries}
            problems += [f"deliveries were answered {statuses}"] if statuses != {200} else []
            print(f"migrated within              {migrated:>8.1f}  s, the start of manage.py included")
            print(f"worker and beat restarted    {restarted:>8.1f}  s, until the old worker's pass is over")
            print(f"events stored                {'':>8}  {by['old']} by the old code, {by['new']} by the new")
            return show_problems(problems)


if __name__ == "__main__":
    sys.exit(command(upgrade, __doc__))
