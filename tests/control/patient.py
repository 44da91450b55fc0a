"""Runs cbf-control with longer times after which an engine counts as hung: a busy machine stalls a process for seconds.

    patient.py CBF-CONTROL [ARGUMENT...]
"""
import runpy
import sys
from pathlib import Path

sys.argv.pop(0)
sys.path.insert(0, str(Path(sys.argv[0]).parent))

import control_engine
import control_fanout

control_engine.SILENT_S = control_fanout.FIRST_TRY_S = 10
runpy.run_path(sys.argv[0], run_name="__main__")
