"""Policies: bundles of rules, compiled to Cedar, and to conditions on rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.lazy_names import lazy_names

if TYPE_CHECKING:
    from omnigraph.policy.bundle import Bundle
    from omnigraph.policy.bundle_file import read_bundle
    from omnigraph.policy.cases import CaseResult, run_cases
    from omnigraph.policy.denials import DenialLog, LoggedDenial
    from omnigraph.policy.policy import Policy
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "bundle": ("Bundle",),
            "cases": ("CaseResult", "run_cases"),
            "denials": ("DenialLog", "LoggedDenial"),
            "policy": ("Policy",),
            "bundle_file": ("read_bundle",),
        },
    )

__all__ = ["Bundle", "CaseResult", "DenialLog", "LoggedDenial", "Policy", "read_bundle", "run_cases"]
