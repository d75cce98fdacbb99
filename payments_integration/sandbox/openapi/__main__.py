"""``python -m payments_integration.sandbox.openapi``: the description as JSON on the standard output."""

from __future__ import annotations

import json
import sys

from .document import document

sys.stdout.write(json.dumps(document(), indent=2, ensure_ascii=False) + "\n")
