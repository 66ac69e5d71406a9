"""The workflows and forms of the code host: they parse, and ask for nothing that is not there."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def jobs_of(workflow):
    return yaml.safe_load(workflow.read_text())["jobs"]


def steps_of(workflow):
    return [step for job in jobs_of(workflow).values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
class TestWorkflow:
    def test_its_make_targets_exist(self, workflow):
        ran = "\n".join(step.get("run", "") for step in steps_of(workflow))
        assert set(re.findall(r"\bmake ([\w-]+)", ran)) <= TARGETS

    def test_its_actions_are_pinned_to_a_version(self, workflow):
        used = [step["uses"] for step in steps_of(workflow) if "uses" in step]
        assert used
        assert all(re.search(r"@(release/)?v\d+(\.\d+)*$|@[0-9a-f]{40}$", each) for each in used)

    def test_it_may_read_and_no_more(self, workflow):
        assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}

    def test_no_job_runs_without_end(self, workflow):
        assert all("timeout-minutes" in job for job in jobs_of(workflow).values())


def test_only_jobs_with_an_environment_may_do_more():
    for workflow in WORKFLOWS:
        for name, job in jobs_of(workflow).items():
            assert ("permissions" in job) == ("environment" in job), f"{workflow.name}: {name}"


def test_every_supported_python_is_tested():
    oldest = re.search(r'requires-python = ">=3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    pythons = jobs_of(ROOT / ".github/workflows/test.yml")["quick"]["strategy"]["matrix"]["python"]
    first, *rest = (int(python.partition(".")[2]) for python in pythons)
    assert first == int(oldest[1])
    assert rest == list(range(first + 1, first + 1 + len(rest)))


def test_the_templates_ask_for_something():
    for form in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        if form.name != "config.yml":
            held = yaml.safe_load(form.read_text())
            assert any(part.get("validations", {}).get("required") for part in held["body"])


def test_hooks_lint_as_make_does():
    held = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    (ours,) = [repo["hooks"] for repo in held["repos"] if repo["repo"] == "local"]
    ran = [hook["entry"].partition(" --")[0] for hook in ours]
    assert ran == [".venv/bin/ruff check", ".venv/bin/ruff format"]
