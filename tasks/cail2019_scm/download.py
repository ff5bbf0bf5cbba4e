"""Gets the official data of CAIL2019-SCM and checks that it is what it should be."""

import dataclasses
import http.client
import json
import shutil
import urllib.error
import urllib.request
import zipfile
from pathlib import Path, PurePosixPath

from tqdm import tqdm

from roformer_zh.command import run_command
from roformer_zh.files import atomic_folder, atomic_path, sha256, write_text
from tasks.cail2019_scm.dataset import OFFICIAL_COUNTS, describe, load_triplets, official_split
from tasks.cail2019_scm.split import leak_table

URL = "https://cail.oss-cn-qingdao.aliyuncs.com/cail2019/CAIL2019-SCM.zip"
_NAMES = {"train.json": "train", "valid.json": "valid", "dev.json": "valid", "test.json": "test"}
_FILES = ("train.json", "valid.json", "test.json", "source.json")


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Get train.json, valid.json and test.json of CAIL2019-SCM, with sizes and classes checked.

    The data belong to the organisers of the Challenge of AI in Law; cite arXiv 1911.08962.
    """

    output: Path
    """Folder for the three files, such as data/cail2019_scm."""
    archive: Path | None = None
    """The zip file, if you have it already; None downloads it."""
    url: str = URL
    """Where the task's page says that the zip file is."""
    timeout: float = 60.0
    """Seconds without an answer after which the download is given up."""


def main(args):
    """Writes the three files; returns their counts."""
    present = [name for name in _FILES if (args.output / name).exists()]
    if present:
        raise ValueError(
            f"--output must not hold {', '.join(present)} yet; choose another folder than "
            f"{args.output}, or remove them"
        )
    archive = args.archive
    if archive is None:
        archive = args.output.with_name(args.output.name + ".zip")
        if not archive.exists():
            fetch(args.url, archive, args.timeout)
    splits = unpack(archive, args.output)
    for name, rows in splits.items():
        counts = describe(rows)
        print(f"{args.output / name}.json: {counts['rows']:,} rows, {counts['B']:,} B, "
              f"{counts['C']:,} C; empty texts {counts['empty_texts']}")
    print("Documents that the splits share:")
    print(leak_table(splits))
    return {name: describe(rows) for name, rows in splits.items()}


def fetch(url, path, timeout):
    """Downloads a file, atomically, with a progress bar.

    Raises:
        RuntimeError: it cannot be had; the message says how to go on without a network.
    """
    print(f"Downloading {url}")
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer, atomic_path(path) as temporary:
            size = int(answer.headers.get("Content-Length", 0)) or None
            with open(temporary, "wb") as file, tqdm(total=size, unit="B", unit_scale=True) as bar:
                while block := answer.read(1 << 18):
                    file.write(block)
                    bar.update(len(block))
            if size and temporary.stat().st_size != size:
                raise OSError(f"{temporary.stat().st_size:,} of {size:,} bytes came")
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, OSError) as error:
        raise RuntimeError(
            f"could not download {url}: {error}; get CAIL2019-SCM.zip another way (the task's page "
            "is github.com/china-ai-law-challenge/CAIL2019, folder scm) and pass it with "
            "--archive FILE"
        ) from error


def unpack(archive, output):
    """Writes train.json, valid.json, test.json and source.json into `output`, all or none.

    Args:
        archive: the official zip file. Members are found by name in any folder; valid may be
            called dev.json.
        output: folder; other files in it stay.

    Returns:
        dict of split to triplets.

    Raises:
        FileNotFoundError: there is no archive.
        ValueError: it is no zip file, or does not hold the official data.
    """
    archive = Path(archive)
    if not archive.is_file():
        raise FileNotFoundError(f"no archive at {archive}")
    try:
        with zipfile.ZipFile(archive) as opened, atomic_folder(output / ".unpacked") as folder:
            for split, member in find_members(opened, archive).items():
                with opened.open(member) as source, open(folder / f"{split}.json", "wb") as target:
                    shutil.copyfileobj(source, target)
            paths = {split: folder / f"{split}.json" for split in OFFICIAL_COUNTS}
            splits = {split: check_split(path, split) for split, path in paths.items()}
            files = {split: sha256(path) for split, path in paths.items()}
    except zipfile.BadZipFile as error:
        raise ValueError(f"{archive} must be a whole zip file: {error}; get it again") from error
    record = {"archive": archive.name, "archive_sha256": sha256(archive), "sha256": files}
    for split in OFFICIAL_COUNTS:
        (output / ".unpacked" / f"{split}.json").replace(output / f"{split}.json")
    (output / ".unpacked").rmdir()
    write_text(output / "source.json", json.dumps(record, indent=2) + "\n")
    return splits


def find_members(opened, archive):
    """The archive's member of each split: dict of split to member name."""
    found = {}
    for name in opened.namelist():
        path = PurePosixPath(name)
        split = _NAMES.get(path.name)
        if split is None or "__MACOSX" in path.parts:
            continue
        if split in found:
            raise ValueError(
                f"{archive} must hold one {split} file; it has {found[split]} and {name}"
            )
        found[split] = name
    missing = [split for split in OFFICIAL_COUNTS if split not in found]
    if missing:
        raise ValueError(
            f"{archive} must hold train.json, valid.json (or dev.json) and test.json; missing: "
            f"{', '.join(missing)}; it has {', '.join(opened.namelist()[:6])}"
        )
    return found


def check_split(path, split):
    """The triplets of a file that must be the official split."""
    rows = load_triplets(path)
    if official_split(rows) != split:
        counts, expected = describe(rows), OFFICIAL_COUNTS[split]
        raise ValueError(f"the official {split} split has {expected['B']:,} rows B and "
                         f"{expected['C']:,} C; {path.name} of the archive has {counts['B']:,} and "
                         f"{counts['C']:,}: it is not the official data")
    return rows


if __name__ == "__main__":
    run_command(main, Arguments)
