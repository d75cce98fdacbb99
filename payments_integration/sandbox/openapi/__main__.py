"""``python -m payments_integration.sandbox.openapi``: write the OpenAPI document as JSON to standard output."""

from __future__ import annotations

import json
import sys

from . import document

sys.stdout.write(json.dumps(document(), indent=2, ensure_ascii=False) + "\n")
