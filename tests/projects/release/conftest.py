from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DIST = ROOT / "dist"


def built(pattern: str) -> Path:
    found = sorted(DIST.glob(pattern))
    assert len(found) == 1, f"dist/ has {len(found)} files {pattern}, not one: run make release-check"
    return found[0]


@pytest.fixture(scope="session")
def sdist() -> Iterator[tarfile.TarFile]:
    with tarfile.open(built("*.tar.gz")) as archive:
        yield archive


@pytest.fixture(scope="session")
def wheel() -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(built("*.whl")) as archive:
        yield archive
