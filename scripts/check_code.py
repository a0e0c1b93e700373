#!/usr/bin/env python3
"""Checks of vocabulary and structure that rustfmt and clippy do not make. Run by `make test`.

    scripts/check_code.py            fail on any finding above the recorded limits
    scripts/check_code.py --list     print every finding
    scripts/check_code.py --tighten  lower the recorded limits to the present counts; never raises one

The limits are in scripts/check_code.json. A count may only fall: a lower count than its limit fails too,
until `--tighten` has recorded it.
"""
import collections
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMITS = ROOT / "scripts" / "check_code.json"

# One-word type names that docs/glossary.md defines, and the shape of a component.
GLOSSARY_TYPES = set(
    "Event Tape Entry Anchor View Turn Run Runner Session Binding Grant Channel Tool Hook Plugin Host Agent Store Batch Fact Fence "
    "Lease Outbox Inbox Outcome Query Cursor Content Envelope Descriptor Model Provider Usage Actor Subject Artifact Transcript "
    "Ledger Policy Permission Capability Scope Skill Budget Approval Sandbox Schedule Webhook Gateway Orchestrator Registry Journal "
    "Clock Config Options Service Handle Error Steering Reasoning Setting Screen Timestamp Capstan".split()
)
BANNED_WORDS = re.compile(r"\b(whoever|whomever|somebody|nobody|everybody|anew|heed|heeds|heeded|hitherto|thereupon)\b", re.I)
OPENING = re.compile(r"(What|Whether|How|Whoever|Why|Where|Which|Who|When|That|It|This|Nothing|These|They)\b")
TYPE = re.compile(r"^\s*(?:pub(?:\([a-z ]+\))? )?(?:struct|enum|trait) ([A-Z]\w*)", re.M)
CONSTANT = re.compile(r"^\s*(?:pub(?:\([a-z ]+\))? )?const ([A-Z]\w*):", re.M)
TEST = re.compile(r"#\[(?:tokio::)?test[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async )?fn (\w+)")
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
MAX_TEST_NAME_LEN = 80
MAX_IMPL_FILES = 3


def rust_files():
    for top in ("crates", "examples", "bench"):
        for path in sorted((ROOT / top).rglob("*.rs")):
            if "target" not in path.parts:
                yield path


def documents():
    yield ROOT / "README.md"
    yield ROOT / "CONTRIBUTING.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))


def comment_blocks(lines):
    """Yields (line number, first line, whole text) of each comment block."""
    block = []
    for number, line in enumerate([*lines, ""], 1):
        stripped = line.strip()
        if stripped.startswith("//"):
            block.append((number, stripped.lstrip("/!").strip(), stripped))
        elif block:
            yield block[0][0], block[0][1], " ".join(text for _, text, _ in block), block[0][2]
            block = []


def find_vocabulary(findings):
    types, constants = collections.defaultdict(list), collections.defaultdict(list)
    for path in rust_files():
        text = path.read_text()
        name = path.relative_to(ROOT)
        for number, first, whole, raw in comment_blocks(text.split("\n")):
            if raw.startswith(("///", "//!")) and OPENING.match(first):
                findings["doc_openings"].append(f"{name}:{number}: {first[:90]}")
            if BANNED_WORDS.search(whole):
                findings["banned_words"].append(f"{name}:{number}: {BANNED_WORDS.search(whole).group(0)}")
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip().startswith("//"):
                continue
            for string in STRING.findall(line):
                if BANNED_WORDS.search(string):
                    findings["banned_words"].append(f"{name}:{number}: {BANNED_WORDS.search(string).group(0)} (string)")
        for test in TEST.findall(text):
            if BANNED_WORDS.search(test.replace("_", " ")):
                findings["banned_words"].append(f"{name}: test {test}")
            if len(test) > MAX_TEST_NAME_LEN:
                findings["long_test_names"].append(f"{name}: {test}")
        for match in TYPE.finditer(text):
            types[match.group(1)].append(str(name))
        for match in CONSTANT.finditer(text):
            constants[match.group(1)].append(str(name))
    for document in documents():
        text = document.read_text()
        for number, line in enumerate(text.split("\n"), 1):
            if BANNED_WORDS.search(line):
                findings["banned_words"].append(f"{document.relative_to(ROOT)}:{number}: {BANNED_WORDS.search(line).group(0)}")
    for name, places in sorted(types.items()):
        if re.fullmatch(r"[A-Z][a-z]+", name) and name not in GLOSSARY_TYPES:
            findings["one_word_types"].append(f"{name}: {places[0]}")
            if re.search(r"(ed|ing|en)$", name):
                findings["participle_types"].append(f"{name}: {places[0]}")
        in_crates = [place for place in places if place.startswith("crates/")]
        if len(in_crates) > 1 and name not in GLOSSARY_TYPES:
            findings["types_defined_twice"].append(f"{name}: {', '.join(in_crates)}")
    for name, places in sorted(constants.items()):
        if len(places) > 2:
            findings["constants_defined_three_times"].append(f"{name}: {', '.join(places)}")


def components(graph):
    """Strongly connected components with more than one member (Tarjan)."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on_stack.add(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on_stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            members = []
            while True:
                member = stack.pop()
                on_stack.discard(member)
                members.append(member)
                if member == node:
                    break
            if len(members) > 1:
                found.append(sorted(members))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def find_module_cycles(findings):
    for crate in sorted((ROOT / "crates").iterdir()):
        graph = collections.defaultdict(set)
        for path in sorted((crate / "src").rglob("*.rs")):
            inside = path.relative_to(crate / "src").parts
            module = inside[0].removesuffix(".rs")
            if module in ("lib", "main"):
                continue
            code = re.sub(r"//.*", "", path.read_text())
            used = set(re.findall(r"\bcrate::([a-z_]\w*)", code))
            for group in re.findall(r"\bcrate::\{([^;]*)\};", code):
                used |= set(re.findall(r"(?:^|[{,]\s*)([a-z_]\w*)::", group))
            # `super::` from the first level of the crate is another first-level module.
            depth = len(inside) - (1 if inside[-1] == "mod.rs" else 0)
            for supers, target in re.findall(r"\b((?:super::)+)([a-z_]\w*)", code):
                if supers.count("super::") >= depth:
                    used.add(target)
            graph[module] |= used - {module}
        modules = set(graph)
        graph = {module: used & modules for module, used in graph.items()}
        for cycle in components(graph):
            findings["module_cycles"].append(f"{crate.name}: {', '.join(cycle)}")


def find_crate_cycles(findings):
    graph = {}
    for manifest in sorted((ROOT / "crates").glob("*/Cargo.toml")):
        crate, section = manifest.parent.name, None
        graph[crate] = set()
        for line in manifest.read_text().split("\n"):
            if line.startswith("["):
                section = line.strip("[]")
            match = re.match(r"capstan(?:-([a-z-]+))?(?:\.workspace)?\s*=", line)
            if match and section in ("dependencies", "dev-dependencies", "build-dependencies"):
                other = match.group(1) or "cli"
                if other != crate:
                    graph[crate].add(other)
    for cycle in components(graph):
        findings["crate_cycles"].append(", ".join(cycle))


def find_unknown_rows(findings):
    rows = set()
    for letter, number in re.findall(r"^\| ([A-Z])(\d+) \|", (ROOT / "docs" / "requirements.md").read_text(), re.M):
        rows.add(f"{letter.lower()}{int(number):02d}")
    for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md"):
        rows.add(f"d{int(path.name[:4]):02d}")
    for path in rust_files():
        for test in re.findall(r"fn ((?:[acdghkoptx]\d{1,2}_)+)\w*\(", path.read_text()):
            for row in re.findall(r"([a-z]\d{1,2})_", test):
                if row not in rows:
                    findings["unknown_rows"].append(f"{path.relative_to(ROOT)}: {row}")


def find_untested_rows(findings):
    """Rows of docs/requirements.md that are marked proven or partly, and that no test cites in its name."""
    cited = set()
    for path in rust_files():
        for test in re.findall(r"fn ((?:[acdghkoptx]\d{1,2}_)+)\w*\(", path.read_text()):
            cited |= set(re.findall(r"([a-z]\d{1,2})_", test))
    rows = re.findall(r"^\| ([A-Z])(\d+) \|.*\| ([^|]*) \|$", (ROOT / "docs" / "requirements.md").read_text(), re.M)
    for letter, number, state in rows:
        if state.startswith(("proven", "partly")) and f"{letter.lower()}{int(number):02d}" not in cited:
            findings["untested_rows"].append(f"{letter}{number}: {state}")


def find_spread_impls(findings):
    files = collections.defaultdict(set)
    for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        crate = path.relative_to(ROOT).parts[1]
        for name in re.findall(r"^impl(?:<[^>]*>)? ([A-Z]\w*)(?:<[^>]*>)? \{", path.read_text(), re.M):
            files[f"{crate}::{name}"].add(path)
    for name, paths in files.items():
        if len(paths) > MAX_IMPL_FILES:
            findings["spread_impls"].append(f"{name}: {len(paths)} files")


def find_stale_paths(findings):
    """Files and functions in the tables of docs/ARCHITECTURE.md that do not exist."""
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| \d+ \| `([a-z_-]+)/(\S+\.rs)` \| (?:`(\w+)`)? ?\|", text, re.M)
    rows += [(crate, file, "") for crate, file in re.findall(r"\| `([a-z_-]+)/src/(\S+\.rs)` \|", text)]
    for crate, file, function in rows:
        path = ROOT / "crates" / crate / "src" / file
        if not path.exists():
            findings["stale_paths"].append(f"{crate}/{file}")
        elif function and not re.search(rf"\bfn {function}\b", path.read_text()):
            findings["stale_paths"].append(f"{crate}/{file}: {function}")


def find_spread_tests(findings):
    """Crates with more than one test binary: each one is linked with the whole program."""
    for crate in sorted({path.parent for path in ROOT.glob("**/Cargo.toml") if "target" not in path.parts}):
        binaries = [*crate.glob("tests/*.rs"), *crate.glob("tests/*/main.rs")]
        if len(binaries) > 1:
            names = ", ".join(sorted(str(path.relative_to(crate / "tests")) for path in binaries))
            findings["spread_tests"].append(f"{crate.relative_to(ROOT)}: {names}")


CHECKS = (
    "doc_openings banned_words long_test_names one_word_types participle_types types_defined_twice "
    "constants_defined_three_times module_cycles crate_cycles unknown_rows untested_rows spread_impls stale_paths spread_tests"
).split()


def main():
    findings = {name: [] for name in CHECKS}
    find_vocabulary(findings)
    find_module_cycles(findings)
    find_crate_cycles(findings)
    find_unknown_rows(findings)
    find_untested_rows(findings)
    find_spread_impls(findings)
    find_stale_paths(findings)
    find_spread_tests(findings)
    limits = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    counts = {name: len(found) for name, found in findings.items()}
    if "--tighten" in sys.argv:
        limits = {name: min(count, limits.get(name, count)) for name, count in counts.items()}
        LIMITS.write_text(json.dumps(limits, indent=2) + "\n")
    failed = False
    for name, count in counts.items():
        limit = limits.get(name, 0)
        if count > limit or "--list" in sys.argv:
            for finding in findings[name]:
                print(f"{name}: {finding}")
        if count > limit:
            print(f"error: {name}: {count} found, {limit} allowed")
            failed = True
        elif count < limit:
            print(f"error: {name}: {count} found, fewer than the recorded {limit}; run scripts/check_code.py --tighten")
            failed = True
    print(", ".join(f"{name} {count}" for name, count in counts.items()))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
