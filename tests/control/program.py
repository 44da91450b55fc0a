"""Runs control/cbf-point within this process, which has already imported astropy."""
import contextlib
import importlib.machinery
import importlib.util
import io
import sys

import harness

POINT = harness.ROOT / "control" / "cbf-point"


def load():
    loader = importlib.machinery.SourceFileLoader("cbf_point", str(POINT))
    program = importlib.util.module_from_spec(importlib.util.spec_from_loader("cbf_point", loader))
    loader.exec_module(program)
    return program


def run(*arguments):
    """Returns (exit status, standard output).  The program's exception Unusable is raised."""
    program, argv, out = load(), sys.argv, io.StringIO()
    sys.argv = [str(POINT), *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out):
            return program.run(program.parse_args()), out.getvalue()
    finally:
        sys.argv = argv
