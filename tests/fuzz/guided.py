"""One target under atheris, whose coverage leads it: ``python -m tests.fuzz.guided <target> <libFuzzer options>``.

A process of its own: libFuzzer ends the process that it runs in.
"""

from __future__ import annotations

import sys
from random import Random

import atheris
import django

#: Where a new branch is worth a seed.
INSTRUMENTED = [
    "payments_integration.signatures",
    "payments_integration.schemas",
    "payments_integration.webhooks",
    "payments_integration.inbox",
    "payments_integration.projection",
    "payments_integration.client",
]


def main(name: str, options: list[str]) -> None:
    with atheris.instrument_imports(include=INSTRUMENTED, enable_loader_override=False):
        django.setup()
        from tests.fuzz.targets import TARGETS  # noqa: PLC0415  (instrumented)
    target = TARGETS[name]
    target.prepare()

    def change(data: bytes, max_size: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < 0.3:
            return bytes(atheris.Mutate(data, max_size))
        return target.mutate(data, random)[:max_size]

    def check(data: bytes) -> None:
        target.check(data)

    atheris.Setup([sys.argv[0], *options], check, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
