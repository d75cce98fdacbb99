"""Every version that the package claims: ``nox --list`` shows the sessions, ``nox -s matrix`` runs them all.

Needs nox and uv; the dependency group ``dev`` brings both. An interpreter that is not on the machine is downloaded. A
session on PostgreSQL or MariaDB starts a server of its own, as ``make test-postgres`` does. Arguments after ``--`` go
to pytest; paths among them stand for the suite.
"""

import os

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv"
nox.options.error_on_missing_interpreters = True
nox.options.sessions = ["matrix"]

SUITE = ("tests/unit", "tests/integration")
#: What a user may install. "none" is the package alone.
EXTRAS = [
    "none", "api", "checkout", "xlsx", "redis", "beat", "postgres", "mysql", "gunicorn", "sentry", "prometheus",
    "health-check", "opentelemetry", "all",
]  # fmt: skip
#: Python, Django, dependencies, database. Django 6.0 and 6.1 need Python 3.12. "psycopg2": PostgreSQL with that driver
#: and no other.
COMBINATIONS = [
    ("3.11", "5.2", "lowest", "sqlite"),
    ("3.11", "5.2", "lowest", "postgres"),
    ("3.11", "5.2", "lowest", "mariadb"),
    ("3.11", "5.2", "highest", "sqlite"),
    *(
        (python, django, "highest", "sqlite")
        for python in ("3.12", "3.13", "3.14")
        for django in ("5.2", "6.0", "6.1")
    ),
    ("3.12", "6.0", "lowest", "sqlite"),
    ("3.13", "6.1", "lowest", "sqlite"),
    ("3.14", "6.1", "lowest", "sqlite"),
    ("3.13", "6.1", "highest", "postgres"),
    ("3.13", "6.1", "highest", "mariadb"),
    ("3.13", "6.1", "highest", "psycopg2"),
]
#: The names of all sessions.
MATRIX = [
    *(f"tests({', '.join(combination)})" for combination in COMBINATIONS),
    *(f"extras({extra}, {dependencies})" for extra in EXTRAS for dependencies in ("highest", "lowest")),
]
#: What starts many processes, or tries many random histories, takes long, and depends on the database more than on
#: versions. It runs with these only: the oldest and the newest versions, and each server.
WHOLE = [
    ("3.11", "5.2", "lowest", "sqlite"),
    ("3.14", "6.1", "highest", "sqlite"),
    ("3.13", "6.1", "highest", "postgres"),
    ("3.13", "6.1", "highest", "mariadb"),
]
LONG = ("tests/integration/kill", "tests/integration/test_simulation.py", "tests/integration/test_cases.py")
LOWEST = ["--resolution=lowest-direct"]
#: Earlier ones cannot be imported with Django 6.1.
DJANGO_61 = "djangorestframework>=3.18"


def versions(python: str, django: str, dependencies: str, database: str) -> object:
    name = f"{python}, {django}, {dependencies}, {database}"
    return nox.param(python, django, dependencies, database, id=name, tags=[f"python{python}"])


@nox.session
@nox.parametrize("python,django,dependencies,database", [versions(*combination) for combination in COMBINATIONS])
def tests(session: nox.Session, django: str, dependencies: str, database: str) -> None:
    """The suite with a Python, a Django, the lowest or the highest dependencies, and a database."""
    extras = "all,mysql" if database == "mariadb" else "all"
    lowest = LOWEST if dependencies == "lowest" else []
    newer = [DJANGO_61] if django == "6.1" else []
    session.install(*lowest, "-e", f".[{extras}]", "--group", "dev", f"Django=={django}.*", *newer)
    server, variables = database, {}
    if database == "psycopg2":
        session.install("psycopg2-binary")
        session.run("uv", "pip", "uninstall", "psycopg", "psycopg-binary")
        server, variables = "postgres", {"TEST_DRIVER": "psycopg2"}
    run = ["python", "-W", "error", "-m"]
    session.run(
        "python", "-c", "import django, sys; print('Python', sys.version.split()[0], 'Django', django.__version__)"
    )
    serve = [] if server == "sqlite" else [*run, "tests.servers", server, "--"]
    arguments = session.posargs or ["-n", "2"]
    suite = [] if any(each.startswith("tests/") for each in arguments) else SUITE
    is_whole = (session.python, django, dependencies, database) in WHOLE
    left_out = [] if is_whole else [f"--ignore={path}" for path in LONG]
    report = f"{session.virtualenv.location}/report.xml"
    pytest = [*run, "pytest", "-q", "--create-db", f"--junitxml={report}", *arguments, *left_out, *suite]
    session.run(*serve, *pytest, env=variables)
    record(session, f"{session.python}, {django}, {dependencies}, {database}", report)


@nox.session
@nox.parametrize("dependencies", ["highest", "lowest"], ids=["highest", "lowest"])
@nox.parametrize("extra", EXTRAS, ids=EXTRAS)
def extras(session: nox.Session, extra: str, dependencies: str) -> None:
    """The package with one extra, or with none: what it brings works, and what it lacks is said."""
    lowest = LOWEST if dependencies == "lowest" else []
    # Compiled, as pip does: the size of a bare install counts that.
    session.install(*lowest, "--compile-bytecode", "." if extra == "none" else f".[{extra}]")
    session.run("python", "-m", "tests.installation", f"{session.bin}/python", "--extra", extra, external=True)
    record(session, extra, dependencies)


def record(session: nox.Session, *what: str) -> None:
    """Write into tests/versions.md that this passed today, as ``make matrix`` asks for."""
    if os.environ.get("RECORD_VERSIONS"):
        session.run("python", "-m", "tests.versions", *what)


@nox.session(python=False)
def matrix(session: nox.Session) -> None:
    """All of the above."""
    for name in MATRIX:
        session.notify(name)
