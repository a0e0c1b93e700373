#!/usr/bin/env python3
"""Checks licences, sources and banned crates of all dependencies against deny.toml, without network. Run by `make check`.

cargo-deny checks the same and more (`make deny`), but takes minutes to install. Known vulnerabilities need a database
from the network, so only `make deny` looks for them.
"""
import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKEN = re.compile(r"\(|\)|[^\s()]+")


def is_allowed(expression, allowed):
    """Evaluates an SPDX expression: OR needs one allowed licence, AND all of them."""
    tokens = TOKEN.findall(expression.replace("/", " OR "))
    position = 0

    def peek():
        return tokens[position] if position < len(tokens) else None

    def take():
        nonlocal position
        position += 1
        return tokens[position - 1]

    def alternatives():
        value = conjunction()
        while peek() == "OR":
            take()
            value = conjunction() or value
        return value

    def conjunction():
        value = licence()
        while peek() == "AND":
            take()
            value = licence() and value
        return value

    def licence():
        name = take()
        if name == "(":
            value = alternatives()
            take()
            return value
        if peek() == "WITH":
            take()
            return f"{name} WITH {take()}" in allowed or name in allowed
        return name in allowed

    return alternatives() and position == len(tokens)


def find_problems(packages, rules):
    allowed = set(rules["licenses"]["allow"])
    registries = {f"registry+{url}" for url in rules["sources"]["allow-registry"]}
    banned = {entry["crate"] for entry in rules["bans"]["deny"]}
    for package in packages:
        name = f"{package['name']} {package['version']}"
        if package["source"] is None:
            for dependency in package["dependencies"]:
                if dependency["req"] == "*" and dependency["source"] is not None:
                    yield f"{name}: {dependency['name']} has no version"
            continue
        if package["source"] not in registries:
            yield f"{name}: comes from {package['source']}"
        if package["name"] in banned:
            yield f"{name}: is banned"
        if not package["license"]:
            yield f"{name}: names no licence"
        elif not is_allowed(package["license"], allowed):
            yield f"{name}: licence {package['license']} is not in deny.toml"


def check_evaluation():
    """Checks the evaluation itself, so that a mistake in it does not let everything pass."""
    allowed = {"MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"}
    cases = {
        "MIT": True,
        "GPL-3.0": False,
        "MIT OR GPL-3.0": True,
        "GPL-3.0/MIT": True,
        "MIT AND GPL-3.0": False,
        "(MIT OR GPL-3.0) AND Zlib": True,
        "(MIT OR Zlib) AND GPL-3.0": False,
        "Apache-2.0 WITH LLVM-exception": True,
        "Apache-2.0": False,
    }
    wrong = [expression for expression, expected in cases.items() if is_allowed(expression, allowed) is not expected]
    assert not wrong, wrong
    rules = {"licenses": {"allow": ["MIT"]}, "sources": {"allow-registry": ["r"]}, "bans": {"deny": [{"crate": "sqlx"}]}}
    package = {"name": "a", "version": "1", "source": "registry+r", "license": "MIT", "dependencies": []}
    changes = [{"name": "sqlx"}, {"license": None}, {"license": "GPL-3.0"}, {"source": "git+https://example.org/a"}]
    assert not list(find_problems([package], rules))
    assert all(list(find_problems([package | change], rules)) for change in changes)


def main():
    check_evaluation()
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--all-features"]
    # A fresh clone has no registry yet; with network, cargo fetches what is missing.
    found = subprocess.run([*command, "--offline"], cwd=ROOT, capture_output=True, text=True)
    if found.returncode != 0:
        found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if found.returncode != 0:
        sys.exit(found.stderr)
    packages = json.loads(found.stdout)["packages"]
    problems = list(find_problems(packages, rules))
    for problem in problems:
        print(f"dependencies: {problem}")
    if problems:
        sys.exit("see deny.toml")
    print(f"dependencies: {len(packages)} packages, licences and sources are allowed")


if __name__ == "__main__":
    main()
