"""Fuzzing of what reads foreign bytes: the signature header, the body of a delivery, the provider's answers.

``python -m tests.fuzz --target event --seconds 60`` runs one target. The oracles and mutations also serve
``tests/unit/test_fuzz_*.py``.
"""
