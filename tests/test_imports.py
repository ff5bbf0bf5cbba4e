"""What an import loads, and which room may import which."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = [
    "files", "config", "rotary", "positions", "dropout", "gradients",
    "attention", "encoder", "heads",
]


def python(code):
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=False
    )


@pytest.mark.parametrize(
    "line",
    [
        "import roformer_zh",
        "from roformer_zh import EncoderConfig, WordTokenizer",
        "import roformer_zh.cli",
    ],
)
def test_importing_loads_no_keras(line):
    result = python(
        f"{line}\nimport sys\n"
        "print([m for m in sys.modules if m.split('.')[0] in"
        " ('keras', 'tensorflow', 'pandas', 'matplotlib')])"
    )
    assert result.stdout.strip() == "[]", result.stdout + result.stderr


def test_every_public_name_loads_and_an_unknown_one_is_an_attribute_error():
    result = python(
        "import roformer_zh\n"
        "for name in roformer_zh.__all__: getattr(roformer_zh, name)\n"
        "roformer_zh.Encodr"
    )
    assert "has no attribute 'Encodr'" in result.stderr


def imported(path):
    """Modules that a file imports: {(module, whether at the top of the file)}."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        top = node in tree.body
        if isinstance(node, ast.Import):
            found |= {(alias.name, top) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {(node.module, top)}
            found |= {(f"{node.module}.{alias.name}", top) for alias in node.names}
    return found


def library_files():
    return sorted((ROOT / "roformer_zh").rglob("*.py"))


def test_the_library_imports_no_script():
    for path in library_files():
        scripts = {
            m
            for m, _ in imported(path)
            if m.split(".")[0] in ("pretrain", "tasks", "vocab", "demo", "benchmarks")
        }
        assert not scripts, f"{path} imports {scripts}"


def test_model_rooms_import_one_way():
    for rank, room in enumerate(ORDER):
        later = {f"roformer_zh.{name}" for name in ORDER[rank:]}
        found = {m for m, _ in imported(ROOT / f"roformer_zh/{room}.py")} & later
        assert not found, f"{room} imports {found}"
        assert not {
            m
            for m, _ in imported(ROOT / f"roformer_zh/{room}.py")
            if m.startswith(("roformer_zh.training", "roformer_zh.corpus"))
        }


MAY_IMPORT = {
    "tokenizer": {"files"},
    "corpus": {"tokenizer", "files", "hashing", "reports"},
    "batches": {"corpus", "tokenizer", "files", "hashing"},
    "training": {"dropout", "files", "gradients", "lazy_tensorflow", "reports"},
}


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_rooms_import_one_way(room):
    for path in sorted((ROOT / "roformer_zh" / room).glob("*.py")):
        found = {
            m.split(".")[1] for m, _ in imported(path) if m.startswith("roformer_zh.")
        } - {room}
        assert found <= MAY_IMPORT[room], f"{path} imports {found - MAY_IMPORT[room]}"


def test_tensorflow_is_imported_only_inside_the_functions_that_need_it():
    for path in library_files():
        uses = [top for module, top in imported(path) if module.split(".")[0] == "tensorflow"]
        assert not any(uses), f"{path} imports tensorflow at the top"
