"""The rendered site: `make docs`.

The source folder is the root of the tree, so that links are those of a repository browser.  The pages are README.md, every
document that docs/README.md links, and docs/decisions.  The four paths of docs/README.md are the site's navigation.
`scripts/check-links` checks all links without Sphinx.
"""
import re
from pathlib import Path, PurePosixPath

from docutils import nodes
from docutils.parsers.rst import Parser
from sphinx import addnodes

ROOT = Path(__file__).resolve().parent.parent
INDEX = "docs/README.md"
TITLES = {"docs/README": "All documents", "HACKING": "Hacking", "kernels/README": "Kernels",
          "docs/decisions/README": "Decisions"}


def linked(text, folder=PurePosixPath("docs")):
    """Paths of the documents that 'text' links, in its order, without those that it has twice."""
    found = {}
    for target in re.findall(r"\]\(([\w./-]+\.(?:md|txt))\)", text):
        path = (folder.parent / target.removeprefix("../")) if target.startswith("../") else folder / target
        found[str(path)] = None
    return list(found)


index = (ROOT / INDEX).read_text()
decisions = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/decisions/*.md"))

project = "A correlator in two daemons"
author = "The authors"
project_copyright = "BSD 3-clause"
version = release = re.search(r'#define CBF_VERSION "(.*)"', (ROOT / "common/base/version.h").read_text())[1]
root_doc = "README"
exclude_patterns = [".*", "build*", "demo-output", "tests"]  # folders that need no search
include_patterns = ["README.md", INDEX, *[path for path in linked(index) if (ROOT / path).exists()], *decisions]
source_suffix = {".md": "markdown", ".txt": "plain"}
extensions = ["myst_parser"]
myst_heading_anchors = 6
myst_enable_extensions = ["html_image"]
html_theme = "furo"
html_title = "gpucbf"
html_copy_source = False
html_show_sphinx = False


class Plain(Parser):
    """A text file as it is, with its name as the title."""

    def parse(self, inputstring, document):
        name = Path(document.settings.env.docname).name
        section = nodes.section(ids=[name], names=[name])
        section += [nodes.title("", f"{name}: reference"),
                    nodes.literal_block(inputstring, inputstring, language="text")]
        document += section


def navigation():
    """The front page's tree of documents: a part for each path of docs/README.md."""
    parts, taken = [("", [INDEX])], {INDEX, "README.md"}
    for title, text in re.findall(r"^## (To \w+)\n(.*?)(?=^## |\Z)", index, re.M | re.S):
        pages = [path for path in linked(text) if path not in taken and (ROOT / path).exists()]
        taken.update(pages)
        parts.append((title, pages))
    return parts


def tree(pages, caption=""):
    lines = [f"/{path.rpartition('.')[0]}" for path in pages]
    lines = [f"{TITLES[line[1:]]} <{line}>" if line[1:] in TITLES else line for line in lines]
    return "\n".join(["", "```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), *lines, "```", ""])


def add_tree(_, docname, source):
    """A repository browser would show directives as text, so they are not in the files."""
    if docname == "README":
        source[0] += "".join(tree(pages, caption) for caption, pages in navigation())
    elif docname == "docs/decisions/README":
        source[0] += tree([path for path in decisions if not path.endswith("README.md")])


def link_paths(app, doctree):
    """Names of documents between backticks become links."""
    known = app.env.found_docs
    for literal in list(doctree.findall(nodes.literal)):
        path = literal.astext()
        docname = path.rpartition(".")[0]
        if path.endswith(".md") and docname in known and not isinstance(literal.parent, (nodes.reference, addnodes.pending_xref)):
            link = addnodes.pending_xref("", refdomain="std", reftype="doc", reftarget=f"/{docname}", refexplicit=True,
                                         refdoc=app.env.docname, refwarn=True)
            literal.replace_self(link)
            link += literal


def widen(app, pagename, templatename, context, doctree):
    """Tables and pictures of 120 columns want more room than the theme gives."""
    context["metatags"] = context.get("metatags", "") + "<style>.content { width: 56em; }</style>"


def front_page(app, exception):
    if not exception and app.builder.name == "html":
        (Path(app.outdir) / "index.html").write_text('<!doctype html><meta http-equiv="refresh" content="0; url=README.html">\n')


def setup(app):
    app.add_source_parser(Plain)
    app.connect("source-read", add_tree)
    app.connect("doctree-read", link_paths)
    app.connect("html-page-context", widen)
    app.connect("build-finished", front_page)
    return {"parallel_read_safe": True}


Plain.supported = ("plain",)
