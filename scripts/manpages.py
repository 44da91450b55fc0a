#!/usr/bin/env python3
"""manpages.py BUILD PAGE: writes the manual page PAGE (fgpu.1, fgpu.yaml.5), in mdoc, to standard output.

The text is in docs/man. The program in BUILD describes its options and its keys. docs/reference has its requests,
sensors and metrics.
"""
import json
import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
LINE_COLUMNS = 78
LIST, END = ".Bl -tag -width Ds\n", ".El\n"


def said(build, program, option):
    return subprocess.run([build / program, option], check=True, stdout=subprocess.PIPE, text=True).stdout


def mdoc(text):
    """Returns the text as mdoc: escaped, with each sentence on a separate line.  Long lines are wrapped."""
    lines = []
    for sentence in re.split(r"(?<=[.?!]) +", text.replace("\\", "\\e")):
        lines += textwrap.wrap(sentence, LINE_COLUMNS, break_long_words=False, break_on_hyphens=False)
    return "".join(("\\&" if line[0] in ".'" else "") + line + "\n" for line in lines)


def options(text):
    """Returns the options in the output of --help, as items of a list."""
    found = re.findall(r"^  --(\S+) +(.*?)( \(no file needed\))?$", text, re.M)
    return "".join(f".It Fl Fl {name}{'' if no_file else ' Ar file'}\n" + mdoc(about[0].upper() + about[1:] + ".")
                   for name, about, no_file in found)


def example_keys(lines):
    """Returns for each key in a section of --print-example: the key's help, and its allowed values."""
    keys, comment = {}, []
    for line in lines:
        key = re.match(r"  #?(\w+): ", line)
        if key:
            keys[key[1]] = " ".join(comment)
        comment = [*comment, line[4:]] if line.startswith("  # ") else []
    return keys


def key_item(key, about, schema):
    text = f".It Ic {key}\n" + mdoc(about.replace(" Choices: ", " One of: "))
    if "default" not in schema:
        return text + "Must be given.\n"
    if schema["default"] in ("", []):
        return text
    default = schema["default"] if isinstance(schema["default"], str) else json.dumps(schema["default"])
    unit = re.search(r" Unit: (\w+)\.$", schema["description"])
    return text + f'Default:\n.Li "{default}"{" " + unit[1] if unit else ""} .\n'


def section_text(name, schema, lines, required):
    """Returns a section as a subsection in mdoc, with a list of its keys.  'lines' are the section's lines in the
    output of --print-example."""
    about, item = example_keys(lines), schema.get("items", schema)
    text = f".Ss {name}\n" + mdoc(schema["description"])
    if item is not schema:
        text += f"A list of {schema['minItems']} to {schema['maxItems']} items.\nEach item has these keys.\n"
    if not required:
        text += "This section is optional.\n"
    return text + LIST + "".join(key_item(key, about[key], of) for key, of in item["properties"].items()) + END


def keys_and_example(schema, example):
    """Returns (all sections as mdoc, the required lines of the example)."""
    schema, keys, literal = json.loads(schema), "", ""
    sections = dict(re.findall(r"^(\w+):\n(.*?)(?=^\w+:\n|\Z)", example, re.M | re.S))
    for name, section in schema["properties"].items():
        lines = sections[name].splitlines()
        keys += section_text(name, section, lines, name in schema["required"])
        given = [line for line in lines if re.match(r" +[^ #]", line)]
        if name in schema["required"] and given:
            literal += "\n".join([f"{name}:", *given]).replace("\\", "\\e") + "\n"
    return keys, literal


def reference(text):
    """Returns a page of docs/reference as mdoc.  In the page, text is indented.  A line that is not indented is the
    title of a section (in capitals) or an item."""
    out, paragraph, in_list = "", [], False
    for line in [*text.splitlines(), ""]:
        if line.startswith(" "):
            paragraph.append(line.strip())
            continue
        out, paragraph = out + mdoc(" ".join(paragraph)), []
        if re.fullmatch("[A-Z]+", line):
            out, in_list = out + (END if in_list else "") + f".Sh {line}\n", False
        elif line:
            # Without the quotes, mdoc would take some words for macros.  "\-" is a dash that can be copied to a
            # shell.
            out, in_list = out + ("" if in_list else LIST) + '.It Ic "%s"\n' % line.replace("-", "\\-"), True
    return out + (END if in_list else "")


def write_page(build, page):
    program, section = page.split(".")[0], page[-1]
    template = (DOCS / "man" / ("program.1.in" if section == "1" else "config.5.in")).read_text()
    keys, example = keys_and_example(said(build, program, "--print-schema"), said(build, program, "--print-example"))
    usage = said(build, program, "--help")
    blocks = {"options": options(usage), "keys": keys, "example": example,
              "reference": reference((DOCS / "reference" / f"{program}.txt").read_text())}
    day = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    print(f".Dd {time.strftime('%B', day)} {day.tm_mday}, {day.tm_year}")
    print(f".Dt {page[:-2].upper()} {section}\n.Os gpucbf {said(build, program, '--version').split()[1]}")
    literal = False
    for line in template.replace("@program@", program).splitlines():
        only = re.match(r"@([a-z ]+)@ ", line)
        if line.strip("@") in blocks:
            print(blocks[line.strip("@")], end="")
        elif not only or program in only[1].split():
            line = line[only.end() if only else 0:]
            literal = line.startswith(".Bd") or literal and line != ".Ed"
            print(line + "\n" if literal or line.startswith(".") else mdoc(line), end="")


write_page(Path(sys.argv[1]), sys.argv[2])
