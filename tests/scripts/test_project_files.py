"""The files around the code: they parse, their commands and files exist, and all of them have one version."""
import json
import os
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ".github/workflows/check.yml"
FORMS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
PAGES = ["CONTRIBUTING.md", "SECURITY.md", ".github/pull_request_template.md"]
COMMANDS = [WORKFLOW, "Dockerfile", ".devcontainer/devcontainer.json", ".pre-commit-config.yaml", *PAGES, *FORMS]
PROGRAMS = "clang-format",


def text_of(name):
    return (ROOT / name).read_text()


def load(name):
    return yaml.safe_load(text_of(name))


def make_targets():
    makefiles = [ROOT / "Makefile", *(ROOT / "mk").glob("*.mk")]
    rules = re.findall(r"^([a-z][a-z -]*):(?!=)", "\n".join(path.read_text() for path in makefiles), re.M)
    return {target for rule in rules for target in rule.split()}


def setup_purposes():
    return set(re.search(r"usage: scripts/setup \[([a-z|]+)\]", text_of("scripts/setup"))[1].split("|"))


@pytest.mark.parametrize("name", COMMANDS)
def test_make_targets_exist(name):
    named = set(re.findall(r"\bmake (?:[A-Z_]+=[^\s`]+ )*([a-z][a-z-]*)", text_of(name)))
    assert named <= make_targets()


@pytest.mark.parametrize("name", COMMANDS)
def test_scripts_exist(name):
    for path in re.findall(r"\bscripts/[\w.-]*\w", text_of(name)):
        assert (ROOT / path).exists() and ("." in path or os.access(ROOT / path, os.X_OK)), path
    assert set(re.findall(r"scripts/setup ([a-z]+)(?![a-z/])", text_of(name))) <= setup_purposes()


def test_versions_agree():
    version = re.search(r'^#define CBF_VERSION "(.*)"', text_of("common/base/version.h"), re.M)[1]
    assert load("CITATION.cff")["version"] == version
    assert re.match(r"gpucbf \((.*?)\)", text_of("debian/changelog"))[1] == version
    releases = [title for title in re.findall(r"^## (\S+)", text_of("CHANGELOG.md"), re.M) if title != "Unreleased"]
    assert releases[:1] in ([], [version])


def test_citation():
    citation = load("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["license"] == "BSD-3-Clause" and text_of("LICENSE").startswith("BSD 3-Clause")


def test_workflow():
    workflow = load(WORKFLOW)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            assert re.search(r"@v\d+$", step.get("uses", "@v1")), step


@pytest.mark.parametrize("name", FORMS)
def test_forms(name):
    form = load(name)
    assert form["name"] and form["description"]
    fields = [part for part in form["body"] if part["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)


def test_pre_commit():
    for repository in load(".pre-commit-config.yaml")["repos"]:
        assert repository["repo"] == "local"
        for hook in repository["hooks"]:
            program = hook["entry"].split()[0]
            assert program in PROGRAMS or os.access(ROOT / program, os.X_OK)
            assert hook["language"] == "system"
            re.compile(hook.get("files", ""))


def stages():
    return re.findall(r"^FROM \S+ AS (\w+)$", text_of("Dockerfile"), re.M)


def test_dockerfile():
    text = text_of("Dockerfile")
    known = set(stages())
    assert len(known) == text.count("\nFROM ")
    assert set(re.findall(r"--target (\w+)|from=(\w+)", text)) <= {(s, "") for s in known} | {("", s) for s in known}
    for source in re.findall(r"^COPY (\S+) \S+$", text, re.M):
        assert (ROOT / source).exists(), source
    installed = text_of("debian/gpucbf.install").split()
    for program in re.findall(r'^ENTRYPOINT \["/(\S+)"\]', text, re.M):
        assert program in installed
    packages = re.findall(r"^Package: (\S+)$", text_of("debian/control"), re.M)
    assert set(re.findall(r"/packages/([a-z-]+)_", text)) <= set(packages)


def test_devcontainer():
    build = json.loads(text_of(".devcontainer/devcontainer.json"))["build"]
    assert (ROOT / ".devcontainer" / build["dockerfile"]).samefile(ROOT / "Dockerfile")
    assert build["target"] in stages()
