"""The floor: see ``floor.py``."""

from benchmarks.contenders.common import common

globals().update(common(INSTALLED_APPS=[], ROOT_URLCONF="benchmarks.contenders.floor"))
