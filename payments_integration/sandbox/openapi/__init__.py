"""The provider's interface as OpenAPI 3.1, written from its document. See ``docs/provider-contract.md``.

It takes nothing from the rest of the sandbox: where the two disagree, the tests say so.
"""

from __future__ import annotations

from .document import document

__all__ = ["document"]
