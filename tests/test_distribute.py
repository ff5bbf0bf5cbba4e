"""The same model on one device, several devices and several processes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


@pytest.mark.slow
def test_cases_on_logical_devices():
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-x", "-p", "no:cacheprovider"]
    process = subprocess.run(
        [*command, str(TESTS / "distribute_cases.py")], capture_output=True, text=True
    )
    print("\n".join(line for line in process.stdout.splitlines() if "largest" in line))
    assert process.returncode == 0, process.stdout[-5000:] + process.stderr[-2000:]
    assert len(re.findall(r"clipped \d+ of 20", process.stdout)) == 7


@pytest.mark.slow
def test_device_check_compares_one_device_with_two():
    command = [sys.executable, "-m", "benchmarks.check_devices", "--devices", "CPU:0", "CPU:1"]
    command += ["--steps", "2", "--batch-size", "3"]
    process = subprocess.run(command, capture_output=True, text=True, cwd=TESTS.parent)
    assert process.returncode == 0, process.stderr[-2000:]
    assert "| update | 1 device | 2 devices |" in process.stdout
    process = subprocess.run(
        [*command, "--tolerance", "-1"], capture_output=True, text=True, cwd=TESTS.parent
    )
    assert process.returncode == 1 and "the losses must agree within" in process.stderr
