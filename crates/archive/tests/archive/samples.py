"""Archives as Python's own writers make them, and what Python's own readers see in archives.

    samples.py make     a line of JSON for each sample: {"name": ..., "format": ..., "hex": ...}
    samples.py read     reads such lines, and answers each with {"files": {path: [mode, sha256]}} or {"error": ...}
"""

import gzip
import hashlib
import io
import json
import stat
import sys
import tarfile
import zipfile

FILES = [
    ("main.py", 0o644, b"import pkg.mod\n"),
    ("pkg/__init__.py", 0o600, b""),
    ("pkg/mod.py", 0o664, b"print('hello')\n" * 50),
    ("bin/tool", 0o755, bytes(range(256)) * 4),
]
ACCENTS = [("d\u00e9j\u00e0/\u732b.txt", 0o644, b"text")]
LONG = [("a" * 80 + "/" + "b" * 60 + "/" + "c" * 60, 0o644, b"long")]


class Pipe(io.RawIOBase):
    """A file that can't be gone back in, as a socket is."""

    def __init__(self):
        self.bytes = b""

    def writable(self):
        return True

    def write(self, data):
        self.bytes += bytes(data)
        return len(data)


def make_zip(files, method=zipfile.ZIP_DEFLATED, comment=b"", piped=False, folders=False, system=3):
    file = Pipe() if piped else io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.comment = comment
        if folders:
            archive.writestr(zipfile.ZipInfo("pkg/"), b"")
        for path, mode, content in files:
            info = zipfile.ZipInfo(path)
            info.compress_type = method
            info.create_system = system
            info.external_attr = (stat.S_IFREG | mode) << 16 if system == 3 else 0
            archive.writestr(info, content)
    return file.bytes if piped else file.getvalue()


def make_tar(files, format=tarfile.USTAR_FORMAT, dots=False, folders=False, headers=None):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format, pax_headers=headers) as archive:
        if folders:
            for name in ["./", "./pkg"] if dots else ["pkg"]:
                info = tarfile.TarInfo(name)
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(info)
        for path, mode, content in files:
            info = tarfile.TarInfo("./" + path if dots else path)
            info.mode, info.size, info.mtime, info.uname = mode, len(content), 1_700_000_000, "user"
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def samples():
    yield "stored", "zip", make_zip(FILES, zipfile.ZIP_STORED)
    yield "deflated", "zip", make_zip(FILES, folders=True)
    yield "comment", "zip", make_zip(FILES, comment=b"0123456789abcdef" * 3)
    yield "piped", "zip", make_zip(FILES, piped=True)
    yield "piped-stored", "zip", make_zip(FILES, zipfile.ZIP_STORED, piped=True)
    yield "accents", "zip", make_zip(ACCENTS)
    yield "from-dos", "zip", make_zip(FILES, system=0)
    for name, format in [("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)]:
        yield name, "tar", make_tar(FILES, format, folders=True)
        yield name + "-long", "tar", make_tar(FILES + LONG, format)
        yield name + "-accents", "tar", make_tar(ACCENTS, format)
        yield name + "-dots", "tar", make_tar(FILES, format, dots=True, folders=True)
        yield name + "-gz", "tar.gz", gzip.compress(make_tar(FILES + LONG, format))
    yield "pax-global", "tar", make_tar(FILES, tarfile.PAX_FORMAT, headers={"comment": "0123456789abcdef"})


def see_zip(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            if not info.is_dir():
                yield info.filename, info.external_attr >> 16, archive.read(info)


def see_tar(data):
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for info in archive:
            if info.isreg() and not info.issparse():
                yield info.name, info.mode, archive.extractfile(info).read()
            elif not info.isdir():
                raise ValueError(f"{info.name}: neither a file nor a folder")


def see(format, data):
    if format == "tar.gz":
        data = gzip.decompress(data)
    files = {}
    for path, mode, content in (see_zip if format == "zip" else see_tar)(data):
        path = path.removeprefix("./")
        path.encode()  # fails for what is no text
        if path in files:
            raise ValueError(f"{path} is there twice")
        files[path] = [mode & 0o777, hashlib.sha256(content).hexdigest()]
    return files


if sys.argv[1] == "make":
    for name, format, data in samples():
        print(json.dumps({"name": name, "format": format, "hex": data.hex()}))
else:
    for line in sys.stdin:
        sample = json.loads(line)
        try:
            answer = {"files": see(sample["format"], bytes.fromhex(sample["hex"]))}
        except Exception as error:
            answer = {"error": ascii(error)}
        print(json.dumps(answer), flush=True)
