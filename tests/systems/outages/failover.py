"""PostgreSQL fails over to a synchronous standby in the middle of load, with kill -9.

    python -m tests.systems.outages.failover [--seconds 20] [--merchants 4] [--asynchronous]

The example project runs under gunicorn with a Celery worker and beat, on a primary with a synchronous standby.
Merchants take payments, pay out and refund, and the sandbox delivers. For two seconds nothing reaches the standby any
more. Then the primary is killed, the standby is promoted, and everything goes on there by itself. What was
acknowledged is looked for at once; at the end the mirror is compared with the sandbox, field by field.

``--asynchronous``: the same with a standby that may lag. This must fail.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.clusters import Primary, Standby
from tests.servers import Redis
from tests.systems.brokers.proxy import Proxy
from tests.systems.outages.site import command, site_on, start

#: For how long the standby gets nothing before the primary dies.
CUT_SECONDS = 2.0


def failover(options: argparse.Namespace) -> bool:
    with Primary() as primary, Proxy(primary.port) as way, Standby(way.port) as standby, Redis() as redis:
        if not options.asynchronous:
            primary.wait_for_standby()
        primary.ask("CREATE DATABASE payments")
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in (primary, standby))
        url = f"postgres://postgres@{hosts}/payments?target_session_attrs=read-write&connect_timeout=5&conn_max_age=60"
        with site_on(url, redis) as installation:
            from tests.systems.outages.traffic import Traffic, lost, show_problems

            start(installation)
            with Traffic(installation, options.merchants) as traffic:
                time.sleep(options.seconds)
                way.silence()
                time.sleep(CUT_SECONDS)
                killed = time.time()
                primary.crash()
                standby.promote()
                promoted = time.time() - killed
                problems = lost(traffic.missing())
                time.sleep(options.seconds)
                problems += traffic.conclude()
            print(f"standby got nothing for      {CUT_SECONDS:>8.1f}  s before the primary was killed")
            print(f"standby promoted             {promoted:>8.1f}  s after that")
            return show_problems(problems)


if __name__ == "__main__":
    sys.exit(command(failover, __doc__, ("--asynchronous", "with a standby that may lag: this must fail")))
