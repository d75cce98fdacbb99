"""A deterministic simulation of the whole system: the provider, the network, the app's processes, their database, the
broker and the clock, driven by one seed. See ``__main__`` for how to run it.

A process that sends, commits or is woken passes a boundary (``scheduler``, ``database``, ``network``). There the
schedule (``machine``) may have it wait, fail, or die as by kill -9. Afterwards everything is healed and drained
(``draining``), and the invariants are checked (``watching``, ``invariants``).
"""
