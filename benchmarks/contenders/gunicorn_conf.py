"""One server for every contender."""

import os

bind = f"127.0.0.1:{os.environ['BENCH_PORT']}"
worker_class = "gthread"
workers = 2
threads = 2
keepalive = 75
timeout = 120
loglevel = "warning"
control_socket_disable = True
