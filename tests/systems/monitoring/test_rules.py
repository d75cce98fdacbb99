"""What promtool says of the alert rules, of the dashboard's expressions, and of a real scrape."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.metrics import MetricWrapperBase

import payments_integration.contrib.prometheus as package
from payments_integration.contrib.prometheus import process
from payments_integration.contrib.prometheus.collector import FAMILIES
from payments_integration.signals import Reason
from tests.integration.runbook.page import PAGE as RUNBOOK
from tests.servers import binary
from tests.systems.monitoring.conftest import PAGE, Site

FOLDER = Path(package.__file__).parent
RULES = (FOLDER / "rules.yml").read_text()
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
#: What Grafana fills in.
VARIABLES = {"$account": ".*", "$__rate_interval": "5m"}


def promtool(*arguments: str, text: str = "", folder: Path | None = None) -> str:
    command = [binary("promtool", "prometheus"), *arguments]
    ended = subprocess.run(command, input=text, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def expressions() -> list[str]:
    found = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
    for name, value in VARIABLES.items():
        found = [expression.replace(name, value) for expression in found]
    return found


def alerts() -> list[str]:
    return re.split(r"^      - alert: ", RULES, flags=re.MULTILINE)[1:]


def test_promtool_accepts_the_rules() -> None:
    assert f"{len(alerts())} rules found" in promtool("check", "rules", str(FOLDER / "rules.yml"))


def test_each_alert_fires_when_it_should(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "rules.yml", tmp_path)
    shutil.copy(Path(__file__).with_name("rules_test.yml"), tmp_path)
    assert "SUCCESS" in promtool("test", "rules", "rules_test.yml", folder=tmp_path)
    tested = (tmp_path / "rules_test.yml").read_text()
    for alert in alerts():
        name = alert.splitlines()[0]
        assert re.search(rf"alertname: {name}\n +exp_alerts:\n +- exp_labels", tested), f"{name} is never seen to fire"
        assert f"alertname: {name}, exp_alerts: []" in tested, f"{name} is never seen to wait"


def test_promtool_accepts_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(expressions())]
    assert len(rules) > 25
    assert not [rule for rule in rules if "$" in rule["expr"]]
    # JSON is YAML.
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", "panels.yml", folder=tmp_path)


def test_promtool_accepts_a_real_scrape(site: Site) -> None:
    assert promtool("check", "metrics", text=site.scrape()) == ""


def defined() -> dict[str, str]:
    """The type of each metric, by the name that it has in an exposition."""
    found = dict.fromkeys(FAMILIES, "gauge")
    for metric in vars(process).values():
        if isinstance(metric, MetricWrapperBase):
            [family] = metric.describe()
            found[family.name + ("_total" if family.type == "counter" else "")] = family.type
    return found


def test_every_metric_of_rules_and_dashboard_exists() -> None:
    rules = re.findall(r"^ +expr: (.+?)^ +for: ", RULES, re.MULTILINE | re.DOTALL)
    assert len(rules) == len(alerts())
    series = {f"{name}_bucket" if kind == "histogram" else name for name, kind in defined().items()}
    used = {name for expression in [*rules, *expressions()] for name in re.findall(r"\bpayments_\w+", expression)}
    assert used <= series
    assert len(used) > 25


def test_a_real_scrape_has_what_is_defined(site: Site) -> None:
    scraped = dict(re.findall(r"^# TYPE (payments_\w+) (\w+)$", site.scrape(), re.MULTILINE))
    assert scraped.items() <= defined().items()
    assert set(FAMILIES) <= set(scraped)


def test_each_metric_has_a_description_and_the_page_names_metrics_that_exist() -> None:
    descriptions = [text for _, text in FAMILIES.values()]
    for metric in vars(process).values():
        if isinstance(metric, MetricWrapperBase):
            descriptions += [family.documentation for family in metric.describe()]
    assert all(descriptions)
    sections = PAGE.partition("\n### What the database says\n")[2].partition("\n### Alerts and dashboard\n")[0]
    named = set(re.findall(r"\bpayments_\w+", sections))
    assert len(named) > 3
    assert named <= set(defined()) | {"payments_health"}


def test_the_page_tells_the_metrics_of_a_process_from_those_of_the_database() -> None:
    """On all targets but one, an operator drops the latter."""
    [expression] = re.findall(r"^`(payments_\(.*)`\.$", PAGE, re.MULTILINE)
    of_processes = {name for name in defined() if re.fullmatch(expression, name)}
    assert of_processes == set(defined()) - set(FAMILIES)


def test_every_alert_has_a_summary_and_a_link_into_the_runbook() -> None:
    codes = {code.value for code in Reason} | {"{{ $labels.code }}", "a-debt"}
    assert "\n## A debt\n" in RUNBOOK.read_text()
    for alert in alerts():
        assert re.search(r'^ +summary: ".+"$', alert, re.MULTILINE), alert
        link = re.search(r'^ +runbook_url: "https://.+/docs/runbook\.md#(.+)"$', alert, re.MULTILINE)
        assert link is not None, alert
        assert link[1] in codes, alert
        assert re.search(r"labels: \{severity: (page|ticket)\}", alert), alert


def test_the_page_names_alerts_that_exist() -> None:
    section = PAGE.partition("\n### Alerts and dashboard\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(Payments\w+)`", section))
    assert named
    assert named <= {alert.splitlines()[0] for alert in alerts()}


def test_the_codes_of_a_page_exist_and_both_alerts_name_the_same() -> None:
    [pages, others] = re.findall(r'payments_problems\{code[=!]~"(.+?)"\}', RULES)
    # Alerts of their own tell of these two.
    assert set(others.split("|")) == {*pages.split("|"), "database", "operation_awaits_approval"}
    assert set(pages.split("|")) <= {code.value for code in Reason}


@pytest.mark.parametrize("name", ["rules.yml", "dashboard.json"])
def test_the_page_names_the_files_that_it_has_copied(name: str) -> None:
    assert name in PAGE
