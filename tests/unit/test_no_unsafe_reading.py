"""H15: nothing untrusted is ever unpickled, evaluated, or imported by name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import django_tenant_queue

PACKAGE = Path(django_tenant_queue.__file__).parent
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "yaml"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
IMPORTS_BY_NAME = {"import_string", "import_module"}
# Settings, this package's own modules and fixed names; never a task name or a payload.
MAY_IMPORT_BY_NAME = {"__init__.py", "conf.py", "checks.py", "middleware.py", "brokers/redis/clients.py", "worker/zygote.py"}


def offences(source: str, name: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = {(node.module or "") if isinstance(node, ast.ImportFrom) else "", *(alias.name for alias in node.names)}
            found += [f"imports {module}" for module in modules if module.split(".")[0] in FORBIDDEN_MODULES]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            found.append(f"calls {node.func.id}")
        if isinstance(node, ast.Name | ast.Attribute) and name not in MAY_IMPORT_BY_NAME:
            used = node.id if isinstance(node, ast.Name) else node.attr
            found += [f"uses {used}"] if used in IMPORTS_BY_NAME else []
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_reads_unsafely(path: Path) -> None:
    """H15."""
    assert offences(path.read_text(), str(path.relative_to(PACKAGE))) == []


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from yaml import load", "import os, marshal", "eval('1')", "x = import_string(name)", "importlib.import_module(n)"],
)
def test_the_search_would_find_it(source: str) -> None:
    assert offences(source, "task.py")
