"""The sandbox for people without a Django project: its image's Dockerfile, run without Docker, and a client in Node.

Images cannot be pulled everywhere, so the Dockerfile's instructions run in order in an empty folder, with an
environment of this Python in the place of the base image. These substitutions are made:

- ``/src`` and ``/data`` are folders below the empty one, and port 8400 is a free one.
- The command of RUN that makes a user and a folder of its own is not run: it changes the machine. USER must name that
  user.
- ``--no-cache-dir`` is left out, so that pip does not load the packages again.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from payments_integration.sandbox import Engine, Fault, SandboxServer, deliveries
from payments_integration.sandbox.deliveries import signature
from payments_integration.sandbox.engine import DEFAULT_FUNDS
from tests.servers import free_port, wait_until
from tests.unit.sandbox.support import Client

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = ROOT / "docker" / "sandbox" / "Dockerfile"
NODE_PROGRAM = Path(__file__).with_name("take_a_payment.mjs")
TRAVELLER = Path(__file__).with_name("travel_in_time.mjs")


def instructions() -> list[tuple[str, str]]:
    """The instructions in order, without comments."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line and not line.startswith("#")]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


class Image:
    """What the Dockerfile makes, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.arguments: dict[str, str] = {}
        self.found: dict[str, str] = {}
        self.user = ""

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LANG"))}
        path = f"{self.folder / 'python' / 'bin'}:/usr/bin:/bin"
        return {**kept, **self.arguments, "PATH": path, "HOME": str(self.folder)}

    def build(self) -> None:
        for name, rest in instructions():
            if (step := getattr(self, f"do_{name.lower()}", None)) is not None:
                step(rest)
            else:
                assert name in ("USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"), name
                self.found[name] = rest

    def do_from(self, rest: str) -> None:
        assert re.fullmatch(r"python:3\.\d+-slim", rest)
        venv.create(self.folder / "python", with_pip=True, symlinks=True)

    def do_arg(self, rest: str) -> None:
        name, _, value = rest.partition("=")
        self.arguments[name] = self.here(value)

    def do_copy(self, rest: str) -> None:
        *sources, target = rest.split()
        place = Path(self.here(target))
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.mkdir(exist_ok=True)
                shutil.copy(ROOT / source, place)

    def do_run(self, rest: str) -> None:
        if made := re.fullmatch(r"useradd --no-create-home --uid [1-9]\d+ (\w+) && install -d -o (\w+) /data", rest):
            assert made[1] == made[2]
            self.user = made[1]
            (self.folder / "data").mkdir()
            return
        command = self.here(rest).replace("--no-cache-dir", "--quiet --disable-pip-version-check")
        subprocess.run(["/bin/sh", "-c", command], check=True, cwd=self.folder, env=self.environment, timeout=900)

    def command(self, name: str) -> list[str]:
        """An instruction in the form that runs without a shell."""
        words = json.loads(self.here(self.found[name].partition("CMD ")[2] or self.found[name]))
        assert isinstance(words, list)
        return [word.replace(":8400", f":{self.port}") for word in words]

    def here(self, text: str) -> str:
        return re.sub(r"(?<![\w/.])/(src|data)\b", lambda found: str(self.folder / found[1]), text)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    built = Image(tmp_path_factory.mktemp("image"))
    built.build()
    return built


@pytest.fixture
def container(image: Image) -> Iterator[subprocess.Popen[bytes]]:
    """As ``docker run … payments-sandbox --state /data/state.json``; the port stands for the published one."""
    words = [*image.command("ENTRYPOINT"), *image.command("CMD"), "--port", str(image.port)]
    words += ["--state", str(image.folder / "data" / "state.json")]
    words[0] = str(image.folder / "python" / "bin" / words[0])
    process = subprocess.Popen(words, cwd=image.folder, env=image.environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def healthy(image: Image) -> bool:
    words = image.command("HEALTHCHECK")
    words[0] = str(image.folder / "python" / "bin" / words[0])
    done = subprocess.run(words, check=False, env=image.environment, stderr=subprocess.DEVNULL, timeout=60)
    return done.returncode == 0


def test_the_image_serves_as_its_user_until_it_is_stopped(image: Image, container: subprocess.Popen[bytes]) -> None:
    assert image.user == image.found["USER"]
    assert image.found["VOLUME"] == "/data"
    assert image.found["EXPOSE"] == "8400"
    wait_until(lambda: healthy(image), 60, "the health check")
    run_node(f"http://127.0.0.1:{image.port}")
    container.send_signal(signal.SIGTERM)  # docker stop
    assert container.wait(timeout=60) == 0
    assert not healthy(image)
    assert (image.folder / "data" / "state.json").exists()
    assert not (image.folder / "src").exists()


def test_the_image_is_built_from_what_its_ignore_file_lets_through() -> None:
    ignored = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().splitlines()
    copied = [source for name, rest in instructions() if name == "COPY" for source in rest.split()[:-1]]
    assert [line[1:] for line in ignored if line.startswith("!")] == copied


def test_the_docs_build_and_run_this_image() -> None:
    page = (ROOT / "docs" / "sandbox.md").read_text()
    built = re.findall(r"^\$ (docker .*)$", page, re.MULTILINE)
    build, run = (shlex.split(line) for line in built)
    assert ROOT / build[build.index("-f") + 1] == DOCKERFILE
    assert build[build.index("-t") + 1] in run
    assert run[run.index("-p") + 1] == "127.0.0.1:8400:8400"
    assert run[run.index("-v") + 1].endswith(":/data")


# a client in another language


def run_node(url: str, *arguments: str, program: Path = NODE_PROGRAM) -> str:
    done = subprocess.run(
        ["node", str(program), url, *arguments], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_payment_is_taken_with_nothing_but_http() -> None:
    engine = Engine("sk_test_node", auto_progress=0.1, funds=DEFAULT_FUNDS)
    with SandboxServer(engine) as server:
        assert "paid and refunded" in run_node(server.url, "sk_test_node")
    (payment,) = engine.payments.values()
    assert payment["refunded_amount"] == 990
    assert engine.endpoints == {}
    assert engine.audit() == []


def test_the_program_ends_with_an_error_if_a_delivery_is_not_signed() -> None:
    engine = Engine(auto_progress=0.1, funds=DEFAULT_FUNDS)
    engine.faults.add(Fault("bad_signature", times=None))
    with SandboxServer(engine) as server, pytest.raises(AssertionError, match="wrong signature"):
        run_node(server.url)


def test_expiry_and_retries_are_received_after_an_advance_of_the_clock() -> None:
    engine = Engine(auto_progress=0.1, funds=DEFAULT_FUNDS)
    untouched = Client(engine).card()
    with SandboxServer(engine) as server:
        shown = run_node(server.url, program=TRAVELLER)
    assert re.fullmatch(r"pay_\w+: expired; pay_\w+: delivered again; pay_\w+: declined\n", shown)
    assert engine.payments == {untouched["id"]: untouched}, "another project"
    assert abs(engine.clock.ahead) < 1


def test_the_program_ends_with_an_error_if_a_delivery_is_signed_with_the_sandbox_s_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(funds=DEFAULT_FUNDS)

    def travelled(body: bytes, secrets: list[str], unix_time: int) -> str:
        return signature(body, secrets, unix_time + int(list(engine.projects.values())[-1].clock.ahead))

    monkeypatch.setattr(deliveries, "signature", travelled)
    with SandboxServer(engine) as server, pytest.raises(AssertionError, match="wrong signature"):
        run_node(server.url, program=TRAVELLER)


@pytest.mark.parametrize("program", [NODE_PROGRAM, TRAVELLER], ids=lambda program: program.stem)
def test_the_program_uses_nothing_but_node(program: Path) -> None:
    imported = re.findall(r"from '(.*)'", program.read_text())
    assert imported
    assert all(name.startswith("node:") for name in imported)
