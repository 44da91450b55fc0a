"""A reader of array.yaml.  The reader returns each value with the value's place in the file, and collects all faults.

array_schema.py has the keys.
"""
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import yaml


@dataclass
class Mark:
    """A place in a file: a line and a column, both counted from 1."""

    line: int
    column: int


def mark_of(node):
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


class Faults:
    """Faults, printed in the order of the file."""

    def __init__(self, path):
        self.path = path
        self.faults = []
        self.warnings = []

    def add(self, mark, sentence):
        if (mark, sentence) not in self.faults:
            self.faults.append((mark, sentence))

    def warn(self, mark, sentence):
        if (mark, sentence) not in self.warnings:
            self.warnings.append((mark, sentence))

    def lines(self):
        every = [(mark, sentence) for mark, sentence in self.faults]
        every += [(mark, "warning: " + sentence) for mark, sentence in self.warnings]
        every.sort(key=lambda fault: (fault[0].line, fault[0].column))
        return [f"{self.path}:{mark.line}:{mark.column}: {sentence}" for mark, sentence in every]


@dataclass
class Value:
    """A scalar, or a list of scalars: the value, its text in YAML, and its place."""

    value: object
    text: str
    mark: Mark


@dataclass
class Section:
    """A mapping: the given values, and defaults for all other keys."""

    mark: Mark
    schema: dict
    given: dict = field(default_factory=dict)  # name -> Value, Section or [Section]

    def __getitem__(self, name):
        if name in self.given:
            item = self.given[name]
            return item.value if isinstance(item, Value) else item
        rule = self.schema["properties"][name]
        if "properties" in rule:
            return Section(self.mark, rule)
        if rule.get("type") == "array" and "properties" in rule["items"]:
            return []
        return rule.get("default")

    def mark_at(self, name):
        item = self.given.get(name)
        return item.mark if isinstance(item, (Value, Section)) else item[0].mark if item else self.mark

    def texts(self, *names):
        """Returns [(name, text, mark)] of the given scalars: all scalars, or only the scalars with these names."""
        return [(name, item.text, item.mark) for name, item in self.given.items()
                if isinstance(item, Value) and (not names or name in names)]


# ---- Reading ---------------------------------------------------------------------------------------------------------


def distance(a, b):
    """Returns the smallest number of edits that turn one name into the other.  An edit inserts, deletes or replaces a
    character, or swaps two neighbouring characters."""
    rows = [list(range(len(b) + 1))]
    for i in range(1, len(a) + 1):
        row = [i]
        for j in range(1, len(b) + 1):
            best = min(rows[i - 1][j] + 1, row[j - 1] + 1, rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]))
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                best = min(best, rows[i - 2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


def nearest(name, names):
    """Returns the name in 'names' that was probably meant, or None.  One in three characters of 'name' may be
    wrong."""
    limit = 2 if len(name) < 3 else len(name) // 3 + 1
    best = min(names, key=lambda other: distance(name, other), default=None)
    return best if best is not None and distance(name, best) < limit else None


def unit_of(rule):
    found = re.search(r"Unit: (.*)\.$", rule.get("description", ""))
    return " " + found[1] if found else ""


def expected(rule):
    """Returns a description of the values that a rule allows."""
    if "enum" in rule:
        return "one of " + ", ".join(map(str, rule["enum"])) + unit_of(rule)
    if "anyOf" in rule:
        lists = [kind for kind in rule["anyOf"] if kind["type"] == "array"]
        inner = expected(lists[0]["items"])
        return f"a list, each item {inner}"
    if rule["type"] in ("integer", "number"):
        kind = "an integer" if rule["type"] == "integer" else "a number"
        limits = f" from {rule['minimum']:.12g} to {rule['maximum']:.12g}" if "minimum" in rule else ""
        return kind + limits + unit_of(rule)
    if rule["type"] == "boolean":
        return "true or false"
    if "pattern" in rule:
        return "made of letters, digits, dots, dashes and underscores"
    if "minLength" in rule and "maxLength" in rule:
        return f"a text of {rule['minLength']} to {rule['maxLength']} characters"
    return "a text"


class Wrong(Exception):
    """Raised if a value breaks its rule."""


def parse(rule, text):
    """Returns the value that a scalar's text has under a rule.  Raises Wrong if the rule does not allow the text."""
    if "enum" in rule:
        for choice in rule["enum"]:
            if text == str(choice) or isinstance(choice, int) and re.fullmatch(r"\d+", text) and int(text) == choice:
                return choice
        raise Wrong
    kind = rule["type"]
    if kind == "boolean":
        if text.lower() not in ("true", "false"):
            raise Wrong
        return text.lower() == "true"
    if kind in ("integer", "number"):
        if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text):
            raise Wrong
        value = int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)
        if kind == "integer" and value != int(value) or not rule["minimum"] <= value <= rule["maximum"]:
            raise Wrong
        return int(value) if kind == "integer" else value
    if not rule.get("minLength", 0) <= len(text) <= rule.get("maxLength", 4096):
        raise Wrong
    if "pattern" in rule and not re.fullmatch(rule["pattern"], text) or re.search(r"[\x00-\x1f\x7f]", text):
        raise Wrong
    return text


def described(node):
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return f"'{node.value}'" if node.value else "nothing"


def written(node):
    """Returns a scalar as YAML, with the text that it has in the file.  A scalar that had quotes or several lines
    gets quotes."""
    return node.value if node.style is None else json.dumps(node.value)


def hint(rule, text):
    """Returns a hint about a common mistake in writing a number.  hint_of() in common/config/values.c gives the same
    hints."""
    if rule.get("type") not in ("integer", "number"):
        return ""
    if unit_of(rule) == " s" and re.match(r"\d{4}-", text):
        return '; write seconds since 1970, as "date +%s -d 2026-01-31T12:00Z" prints'
    rest = re.fullmatch(r"[-+.\d]+ *(.*)", text, re.DOTALL)
    if not rest:
        return ""
    if rest[1].startswith((",", "_")):
        return "; write the number without separators, like 1.5 or 1e6"
    return "; write the number without a unit, like 1e6" if re.match(r"(?![eExX])[A-Za-z]", rest[1]) else ""


# Sections that identify a file as the configuration of a program.  An array's file has hosts and multicast instead.
SIGNS = {"visrec": {"telescope", "stream"}, "beamrec": {"beams", "stream"}, "fgpu": {"outputs", "antennas"},
         "xbgpu": {"outputs", "recv"}, "dsim": {"digitiser", "antennas"}, "fsim": {"signal", "stream"}}


def owner(node):
    """Returns the program whose configuration this file seems to be; None if the file may be an array.yaml."""
    if not isinstance(node, yaml.MappingNode):
        return None
    names = {key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)}
    if names & {"hosts", "multicast", "f_outputs", "x_outputs"}:
        return None
    return next((program for program, signs in SIGNS.items() if signs <= names), None)


class Reader:
    def __init__(self, faults):
        self.faults = faults

    def load(self, rule, node, where=""):
        """Returns the Section, [Section] or Value of a node.  Reports a fault and returns None if the node breaks its
        rule."""
        if "properties" in rule:
            return self.load_section(rule, node, where)
        if rule.get("type") == "array":
            return self.load_sections(rule, node, where)
        return self.load_value(rule, node, where)

    def load_section(self, rule, node, where):
        if isinstance(node, yaml.ScalarNode) and node.value == "" and not rule["required"]:
            return Section(mark_of(node), rule)
        if not isinstance(node, yaml.MappingNode):
            self.faults.add(mark_of(node), f"{where or 'the file'} must have keys, but {described(node)} is given")
            return None
        section, names = Section(mark_of(node), rule), set()
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            full = f"{where}.{name}" if where else name
            if name in names:
                self.faults.add(mark_of(key), f"{full} is given twice")
            elif name in rule["properties"]:
                item = self.load(rule["properties"][name], value, full)
                if item is not None:
                    section.given[name] = item
            else:
                self.unknown(mark_of(key), name, where, list(rule["properties"]))
            names.add(name)
        for name in rule["required"]:
            if name not in names:
                full = f"{where}.{name}" if where else name
                help_text = rule["properties"][name]["description"]
                self.faults.add(mark_of(node), f"{full} is missing and has no default ({help_text.removesuffix('.')})")
        return section

    def unknown(self, mark, name, where, names):
        what = f"unknown key '{name}' in {where}" if where else f"unknown section '{name}'"
        meant = nearest(name, names)
        every = f"its keys are {', '.join(names)}" if where else f"the sections are {', '.join(names)}"
        self.faults.add(mark, f"{what}; " + (f"did you mean '{meant}'?" if meant else every))

    def load_sections(self, rule, node, where):
        if not isinstance(node, yaml.SequenceNode):
            self.faults.add(mark_of(node),
                            f"{where} must be a list (each item beginning with \"- \"), but {described(node)} is given")
            return None
        if not rule["minItems"] <= len(node.value) <= rule["maxItems"]:
            self.faults.add(mark_of(node),
                            f"{where} must have {rule['minItems']} to {rule['maxItems']} items, not {len(node.value)}")
        items = [self.load(rule["items"], item, f"{where}[{i}]") for i, item in enumerate(node.value)]
        return [item for item in items if item is not None]

    def load_value(self, rule, node, where):
        one = rule
        nodes = [node]
        if "anyOf" in rule:  # a scalar, or a list of them
            one = next(kind for kind in rule["anyOf"] if kind["type"] == "array")["items"]
            nodes = node.value if isinstance(node, yaml.SequenceNode) else nodes
        values = []
        for item in nodes:
            if not isinstance(item, yaml.ScalarNode):
                self.faults.add(mark_of(item), f"{where} must be {expected(rule)}, but {described(item)} is given")
                return None
            try:
                values.append(parse(one, item.value))
            except Wrong:
                self.faults.add(mark_of(item), f"{where} must be {expected(rule)}, but {described(item)} is given"
                                               f"{hint(one, item.value)}")
                return None
        if "anyOf" in rule:
            return Value(values, "[" + ", ".join(json.dumps(item.value) if isinstance(value, str) else item.value
                                                 for item, value in zip(nodes, values)) + "]", mark_of(node))
        return Value(values[0], written(node), mark_of(node))


def load(path, schema, faults):
    """Reads array.yaml into a Section.  Returns None if the file cannot be used at all."""
    try:
        node = yaml.compose(Path(path).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        faults.add(Mark(1, 1), f"cannot be read: {error.strerror}")
        return None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        at = getattr(error, "problem_mark", None)
        mark = Mark(at.line + 1, at.column + 1) if at else Mark(1, 1)
        faults.add(mark, f"is not YAML: {getattr(error, 'problem', None) or error}")
        return None
    if node is None:
        faults.add(Mark(1, 1), "is empty")
        return None
    if owner(node):
        faults.add(Mark(1, 1), f"this looks like a configuration of {owner(node)}, not of scripts/array")
        return None
    return Reader(faults).load(schema, node)
