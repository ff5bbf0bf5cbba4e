"""Files that appear under their final name only when they are whole."""

import contextlib
import hashlib
import os
import re
import shutil
import socket
import tempfile
from pathlib import Path

_OLD = ".old"


@contextlib.contextmanager
def atomic_path(path):
    """Yields a temporary path beside `path`; renames it to `path` if the block succeeds.

    The file is flushed to disk before the rename. When the block raises (a full disk too), the
    temporary file is removed and an older file at `path` stays as it was.

    Args:
        path: the final path; missing parent folders are made.

    Example:
        >>> import tempfile, pathlib
        >>> target = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
        >>> with atomic_path(target) as temporary:
        ...     _ = temporary.write_text("whole")
        >>> target.read_text()
        'whole'
    """
    path = _prepare(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=_mine(path), suffix=path.suffix)
    os.close(handle)
    os.chmod(name, 0o666 & ~_umask())
    temporary = Path(name)
    try:
        with _named(path):
            yield temporary
            _flush(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path):
    """Yields a temporary folder beside `path`; renames it to `path` if the block succeeds.

    A folder already at `path` is replaced only then. Other processes never see a partial folder.

    Args:
        path: the final path; missing parent folders are made.
    """
    path = _prepare(path)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=_mine(path)))
    os.chmod(temporary, 0o777 & ~_umask())
    try:
        with _named(path):
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():
                    _flush(file)
        if path.exists():
            old = Path(tempfile.mkdtemp(dir=path.parent, prefix=_mine(path), suffix=_OLD))
            os.replace(path, old)
            os.replace(temporary, path)
            shutil.rmtree(old)
        else:
            os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(path, text):
    """Writes `text` to `path` as UTF-8, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def sha256(path):
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _prepare(path):
    """`path` with its parent made, and without what a killed process left beside it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    pattern = re.compile(re.escape(f".{path.name}.{socket.gethostname()}-") + r"(\d+)-")
    for sibling in path.parent.iterdir():
        match = pattern.match(sibling.name)
        if not match or _is_alive(int(match.group(1))):
            continue
        if sibling.name.endswith(_OLD) and not path.exists():
            os.replace(sibling, path)  # killed between the two renames of a replacement
        elif sibling.is_dir():
            shutil.rmtree(sibling, ignore_errors=True)
        else:
            sibling.unlink(missing_ok=True)
    return path


def _mine(path):
    """How the temporary names of this process begin."""
    return f".{path.name}.{socket.gethostname()}-{os.getpid()}-"


def _is_alive(process):
    """Whether a process of this machine runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextlib.contextmanager
def _named(path):
    """Gives an OSError without a file name (a full disk) the final path, and a hint."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        hint = "nothing was changed there; make room, or choose another place, and run it again"
        raise type(error)(error.errno, f"{error.strerror}; {hint}", str(path)) from error


def _flush(path):
    """Makes the system write a file to the disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _umask():
    """The process' umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
