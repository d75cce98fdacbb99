"""The sdist is the whole project and its tests run there; the wheel is the whole package; its page on an index has no
dead link."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

import pytest

from payments_integration import __version__
from tests.projects.release.conftest import ROOT

NAME = f"payments_integration-{__version__}"
METADATA = {"wheel": f"{NAME}.dist-info/METADATA", "sdist": f"{NAME}/PKG-INFO"}
LINK = re.compile(r"(!?)\[[^]]*\]\(([^)]+)\)|(?:href|src)=\"([^\"]+)\"")


def tracked(*paths: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", "-z", *paths], cwd=ROOT, check=True, capture_output=True, text=True)
    return set(listed.stdout.split("\0")) - {""}


def metadata(archive: tarfile.TarFile | zipfile.ZipFile) -> EmailMessage:
    if isinstance(archive, zipfile.ZipFile):
        content = archive.read(METADATA["wheel"])
    else:
        member = archive.extractfile(METADATA["sdist"])
        assert member is not None
        content = member.read()
    found = message_from_bytes(content, policy=policy.default)
    assert isinstance(found, EmailMessage)
    return found


def test_the_sdist_has_every_file_of_the_project_and_no_other(sdist: tarfile.TarFile) -> None:
    files = {member.name.removeprefix(f"{NAME}/") for member in sdist.getmembers() if not member.isdir()}
    assert files == tracked() | {"PKG-INFO"}


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel: zipfile.ZipFile) -> None:
    files = {name for name in wheel.namelist() if not name.startswith(f"{NAME}.dist-info/")}
    assert files == {name for name in tracked("payments_integration") if not name.endswith(".po")}
    assert wheel.read(f"{NAME}.dist-info/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("built", ["sdist", "wheel"])
def test_the_page_on_an_index_links_to_the_files_of_this_release(built: str, request: pytest.FixtureRequest) -> None:
    found = metadata(request.getfixturevalue(built))
    source = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
    readme = LINK.findall((ROOT / "README.md").read_text())
    page = LINK.findall(found.get_content())
    assert found["Version"] == __version__
    assert found["Description-Content-Type"] == "text/markdown"
    assert len(page) == len(readme) > 10
    for (image, *addresses), (_, *originals) in zip(page, readme, strict=True):
        address, original = "".join(addresses), "".join(originals)
        if "://" in original:
            assert address == original
        else:
            assert address == f"{source}/{'raw' if image else 'blob'}/v{__version__}/{original}"
            assert (ROOT / original.partition("#")[0]).is_file(), original


def test_the_tests_run_from_the_sdist(sdist: tarfile.TarFile, tmp_path: Path) -> None:
    """In an empty directory without git. Those of the fuzzer take long and read no file."""
    # Python before 3.11.4 has no filter.
    sdist.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    place = tmp_path / NAME
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "PYTEST", "CASES"))
    }
    pytest_here = [sys.executable, "-W", "error", "-m", "pytest", "-q"]
    collect = [*pytest_here, "-n", "0", "--collect-only", "tests/unit", "tests/integration", "tests/projects/release"]
    subprocess.run(collect, cwd=place, env=environ, check=True, stdout=subprocess.DEVNULL)
    files = [path.relative_to(place) for path in sorted((place / "tests/unit").glob("test_*.py"))]
    run = [*pytest_here, "-n", "2", *(str(path) for path in files if not path.name.startswith("test_fuzz"))]
    subprocess.run(run, cwd=place, env=environ, check=True)
