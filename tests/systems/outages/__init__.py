"""Proofs beyond one process: a site under load whose database fails over, is restored, or is upgraded meanwhile.

``make failover``, ``make galera``, ``make patroni``, ``make restore``, ``make upgrade`` and ``make replica`` run them.
Each starts servers of its own, prints what it measured, and exits 1 if anything is lost or doubled.
"""
