"""Proofs beyond one process: a site under load whose database fails over, is restored, or is upgraded meanwhile.

``make failover``, ``make galera``, ``make patroni``, ``make restore``, ``make upgrade`` and ``make replica`` run them.
Each starts its own servers and prints what it measured. It exits with 1 if anything is lost or doubled.
"""
