"""A node of a Galera cluster is killed in the middle of load, and joins again.

    python -m tests.systems.outages.galera [--seconds 20] [--merchants 4] [--everywhere]

Three nodes of MariaDB. The example project runs under gunicorn with a Celery worker and beat, and merchants take
payments, pay out and refund. All of them write to one node, through a proxy. It is killed with -9, the proxy leads at
once to the next node, and the killed one joins again. At the end the mirror is compared with the sandbox, field by
field. Reads wait for what other nodes have committed (``WAITS``), which a system check demands.

``--everywhere``: the site, the worker and the merchants each write to a node of their own, and none is killed.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.clusters import galera
from tests.servers import Redis
from tests.systems.brokers.proxy import Proxy
from tests.systems.outages.site import SCHEDULE, command, site_on

#: After a node's URL.
WAITS = "?init_command=SET%20wsrep_sync_wait%20%3D%201"


def under_load(options: argparse.Namespace) -> bool:
    with galera() as nodes, Proxy(nodes[0].port) as way, Redis() as redis:
        nodes[0].ask("CREATE DATABASE payments")
        writer = nodes[0].url.replace(str(nodes[0].port), str(way.port)) + WAITS
        with site_on(nodes[2].url + WAITS if options.everywhere else writer, redis) as installation:
            from tests.systems.outages.traffic import Traffic, lost, show_problems

            installation.database_url = writer
            installation.site()
            installation.worker(DATABASE_URL=nodes[1].url + WAITS if options.everywhere else writer)
            installation.beat(**SCHEDULE)
            with Traffic(installation, options.merchants) as traffic:
                time.sleep(options.seconds)
                problems = []
                if not options.everywhere:
                    nodes[0].kill()
                    way.lead_to(nodes[1].port)
                    problems = lost(traffic.missing())
                    time.sleep(options.seconds)
                    nodes[0].start()
                time.sleep(options.seconds)
                problems += traffic.conclude()
            return show_problems(problems)


if __name__ == "__main__":
    sys.exit(command(under_load, __doc__, ("--everywhere", "the site, the worker and the merchants on three nodes")))
