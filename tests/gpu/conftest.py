"""The engine tests' harness and fixtures, for the tests that need a GPU."""
import importlib.util
import sys
from pathlib import Path

ENGINE = Path(__file__).resolve().parents[1] / "engine"
sys.path.insert(0, str(ENGINE))
_spec = importlib.util.spec_from_file_location("engine_conftest", ENGINE / "conftest.py")
_engine = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_engine)

SEED = _engine.SEED
pytest_report_header = _engine.pytest_report_header
pytest_runtest_makereport = _engine.pytest_runtest_makereport
no_sanitizer_reports = _engine.no_sanitizer_reports
work, rng, daemon = _engine.work, _engine.rng, _engine.daemon
