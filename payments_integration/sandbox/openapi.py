"""Read the provider's interface as an OpenAPI 3.1 document, written from the provider's own description.

The document is the file ``openapi.json``. It shares nothing with the rest of the sandbox, and tests compare the two.
See ``docs/architecture.md``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_suffix(".json")


def document(base_url: str | None = None) -> dict[str, Any]:
    """Return the OpenAPI document.

    ``base_url`` is the address of the service without ``/v1``; empty for relative URLs, None for a variable.
    """
    found: dict[str, Any] = json.loads(_FILE.read_bytes())
    if base_url is not None:
        found["servers"] = [{"url": f"{base_url.rstrip('/')}/v1"}]
    return found
