"""The environment of the peer that webhooks are measured beside. The project itself does not depend on it."""

from __future__ import annotations

import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".venv-peer"
REQUIREMENTS = ROOT / "benchmarks/contenders/peer-requirements.txt"
#: Peer and app have these in one version, and the same Python, so that only the code under test differs.
SHARED = ("Django", "django-environ", "gunicorn", "psycopg")


def interpreter() -> str:
    """The Python of that environment, which is made when it is absent or holds other versions."""
    python, ready = PLACE / "bin/python", PLACE / ".ready"
    pins = [f"{name}=={version(name)}" for name in SHARED]
    wanted = "\n".join([sys.version, *pins, REQUIREMENTS.read_text()])
    if ready.exists() and ready.read_text() == wanted:
        return str(python)
    print(f"Installing the peer into {PLACE.name} ...", file=sys.stderr, flush=True)
    venv.create(PLACE, clear=True, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*pip, "-r", str(REQUIREMENTS), *pins], check=False).returncode:
        raise SystemExit(
            f"the peer cannot be installed: it needs a package index, and to agree with Python "
            f"{sys.version.split()[0]} and {', '.join(pins)}"
        )
    ready.write_text(wanted)
    return str(python)
