"""Run every benchmark in this folder, go on after a missed goal, and sum up at the end.

Run through `make bench`. Every other script in this folder, but for the harness, is a benchmark.
Exits with 1 when a goal was missed or a benchmark failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness import Report, arguments

HERE = Path(__file__).resolve().parent


def main(argv: Sequence[str] | None = None, folder: Path = HERE) -> int:
    options = arguments("Run all benchmarks.").parse_args(argv)
    outcomes = {script.stem: run(script, quick=options.quick) for script in benchmarks(folder)}
    reports = [report for report in outcomes.values() if report is not None]
    if options.json is not None:
        options.json.write_text(json.dumps(reports, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    goals = [(report["benchmark"], goal) for report in reports for goal in report["goals"]]
    missed = [f"missed: {benchmark}: {goal['name']}" for benchmark, goal in goals if not goal["met"]]
    failed = [f"failed: {name}" for name, report in outcomes.items() if report is None]
    print(f"benchmarks: {len(outcomes)} run, {len(failed)} failed; goals: {len(goals)} set, {len(missed)} missed")
    for line in missed + failed:
        print(f"  {line}")
    return 1 if missed or failed else 0


def benchmarks(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.py") if path.name not in {"harness.py", "run.py"})


def run(script: Path, *, quick: bool) -> Report | None:
    """The report of one benchmark, or None if it broke down before it could write one."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "report.json"
        subprocess.run([sys.executable, script, "--json", file, *(["--quick"] if quick else [])], check=False)
        print(flush=True)
        if not file.exists():
            return None
        report: Report = json.loads(file.read_text(encoding="utf-8"))
        return report


if __name__ == "__main__":
    sys.exit(main())
