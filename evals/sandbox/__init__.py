"""Runs programs that nobody has read, with tests that they cannot cheat; see README.md in this folder."""

from evals.sandbox.jobs import VERSION, Asserts, Calls, Job, Limits, Number, Stdio, Verdict
from evals.sandbox.pool import Sandbox, run_program, self_test
from evals.sandbox.tiers import TIERS, Check, IsolationError, Tier, probe

__all__ = [
    "TIERS",
    "VERSION",
    "Asserts",
    "Calls",
    "Check",
    "IsolationError",
    "Job",
    "Limits",
    "Number",
    "Sandbox",
    "Stdio",
    "Tier",
    "Verdict",
    "probe",
    "run_program",
    "self_test",
]
