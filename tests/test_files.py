"""Nothing half-written stands under a final name."""

import subprocess
import sys

import pytest

from roformer_zh.command import run_command
from roformer_zh.files import atomic_folder, atomic_path, sha256, write_text


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    write_text(tmp_path / "a" / "b.txt", "old")
    with pytest.raises(OSError, match="full"), atomic_path(tmp_path / "a" / "b.txt") as temporary:
        temporary.write_text("half")
        raise OSError("disk full")
    assert (tmp_path / "a" / "b.txt").read_text() == "old"
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b.txt"]


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path):
    target = tmp_path / "corpus"
    for text in ("one", "two"):
        with atomic_folder(target) as temporary:
            (temporary / f"{text}.txt").write_text(text)
            assert text == "one" or (target / "one.txt").exists()
    with pytest.raises(ValueError, match="bad"), atomic_folder(target) as temporary:
        (temporary / "three.txt").write_text("three")
        raise ValueError("bad")
    assert [p.name for p in target.iterdir()] == ["two.txt"]
    assert [p.name for p in tmp_path.iterdir()] == ["corpus"]


@pytest.mark.parametrize("atomic", [atomic_path, atomic_folder])
def test_a_full_disk_is_named_with_what_to_do(tmp_path, atomic):
    message = r"No space left.*make room.*: '.*target'"
    with pytest.raises(OSError, match=message), atomic(tmp_path / "target"):
        raise OSError(28, "No space left on device")
    assert not list(tmp_path.iterdir())


KILLED = """
import os, signal, sys
from roformer_zh import files
with files.atomic_folder(sys.argv[1]) as folder:
    (folder / "half").write_text("x" * 1000)
    if sys.argv[2] == "writing":
        os.kill(os.getpid(), signal.SIGKILL)
    real, count = os.replace, [0]
    def replace(*names):
        count[0] += 1
        if count[0] == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        real(*names)
    files.os.replace = replace
"""


@pytest.mark.parametrize("moment", ["writing", "between the renames"])
def test_what_a_killed_process_left_is_removed_and_nothing_is_lost(tmp_path, moment):
    with atomic_folder(tmp_path / "corpus") as folder:
        (folder / "old.txt").write_text("old")
    subprocess.run([sys.executable, "-c", KILLED, tmp_path / "corpus", moment], check=False)
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(ValueError, match="bad"), atomic_folder(tmp_path / "corpus"):
        raise ValueError("bad")
    assert [p.name for p in tmp_path.iterdir()] == ["corpus"]
    assert (tmp_path / "corpus" / "old.txt").read_text() == "old"


def test_a_checksum_sees_one_byte(tmp_path):
    write_text(tmp_path / "a", "甲乙")
    write_text(tmp_path / "b", "甲丙")
    assert sha256(tmp_path / "a") != sha256(tmp_path / "b")


SCRIPT = """
import dataclasses
from roformer_zh.command import run_command

@dataclasses.dataclass(frozen=True)
class Arguments:
    'Does one thing.'
    number: int = 3
    'How often.'

def main(args):
    if args.number > 3:
        raise ValueError("number must be\\nat most 3; got %d" % args.number)
    if args.number < 0:
        raise TypeError("a bug")

run_command(main, Arguments)
"""


@pytest.mark.parametrize(
    "argv, code, message",
    [
        ([], 0, ""),
        (["--number", "4"], 1, "error: number must be at most 3; got 4\n"),
        (["--nmber", "4"], 2, "--nmber"),
        (["--number", "-1"], 1, "Traceback"),
        (["--help"], 0, ""),
    ],
)
def test_a_script_ends_with_one_line_or_a_traceback_for_a_bug(tmp_path, argv, code, message):
    (tmp_path / "script.py").write_text(SCRIPT)
    result = subprocess.run(
        [sys.executable, tmp_path / "script.py", *argv], text=True, capture_output=True, check=False
    )
    assert result.returncode == code
    if message.startswith("error"):
        assert result.stderr == message
    else:
        assert message in result.stderr
    if argv == ["--help"]:
        assert "How often." in result.stdout and "default: 3" in result.stdout


def test_run_command_is_importable_without_keras():
    assert callable(run_command)
    result = subprocess.run(
        [sys.executable, "-c", "import roformer_zh.command, sys; print('keras' in sys.modules)"],
        text=True,
        capture_output=True,
        check=False,
    )
    assert result.stdout == "False\n"
