"""`spark-submit` with the wheel: the driver and its tasks import the package from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("submitted.py")
SETTINGS = {"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@pytest.mark.spark
@pytest.mark.slow
def test_a_graph_is_loaded_and_read_with_spark_submit(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    home = Path(pyspark.__file__).parent
    told = [f"--conf={name}={value}" for name, value in SETTINGS.items()]
    submit: list[str | Path] = [
        home / "bin" / "spark-submit",
        "--master",
        "local[2]",
        *told,
        "--py-files",
        wheel,
        SCRIPT,
        tmp_path,
    ]
    environment = os.environ | {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "OMNIGRAPH_FSYNC": "0"}
    for name in ("PYTHONPATH", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        environment.pop(name, None)
    ran = subprocess.run(submit, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "TOLD" in ran.stdout, ran.stderr[-4000:]
    said = json.loads(ran.stdout.partition("TOLD")[2])
    assert said["loaded"] == 199
    assert said["read"] == "p8"
    assert wheel.name in said["driver"], "the driver has it from the wheel"
    assert [place.partition(".zip/")[0].endswith(wheel.stem) for place in said["tasks"]] == [True], said["tasks"]
