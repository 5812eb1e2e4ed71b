"""The images that jobs run in: reproducible, minimal, valid in both archive formats, runnable."""

import http.server
import json
import os
import shutil
import subprocess
import tempfile
import threading
import unittest
from functools import partial
from hashlib import sha256
from pathlib import Path

from support import IMAGES, PACKAGES, Unpacked, build, engine, needs_apt, run_build

from debian import Lock, iso
from oci import compact


class JobImage:
    """What holds of each. It is built twice, from two copies of this folder and under two umasks."""

    maxDiff = None
    name = ""
    largest_bytes = 0
    unwanted_commands = {"gcc", "cc", "as", "ld", "make", "apt", "apt-get", "dpkg", "perl", "su", "mount"}
    unwanted_folders: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    """What jobs call."""
    program: tuple[str, ...] = ()
    """Run as a job would be: another user, a read-only root, no network."""
    prints = ""

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Path(tempfile.mkdtemp(prefix="mayfly-image-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.record = build(IMAGES, cls.folder / "one", name=cls.name)
        copy = cls.folder / "a copy elsewhere/deploy/images"
        shutil.copytree(IMAGES, copy, ignore=shutil.ignore_patterns("__pycache__"))
        cls.again = build(copy, cls.folder / "two", umask=0o077, name=cls.name)
        cls.image = Unpacked(cls.record)

    def test_the_same_inputs_give_the_same_bytes_in_another_folder_and_under_another_umask(self) -> None:
        self.assertEqual(self.record | {"archive": ""}, self.again | {"archive": ""})
        one, two = (sha256(Path(r["archive"]).read_bytes()).hexdigest() for r in (self.record, self.again))
        self.assertEqual(one, two)

    def test_it_is_not_larger_than_it_was_meant_to_be(self) -> None:
        self.assertLess(self.record["size_bytes"], self.largest_bytes)

    def test_no_file_is_setuid_setgid_a_device_or_writable_by_others(self) -> None:
        allowed = {("dir", 0o755), ("file", 0o755), ("file", 0o644), ("link", 0o777)}
        odd = {}
        for member in self.image.members:
            kind = "dir" if member.isdir() else "file" if member.isreg() else "link" if member.issym() else "other"
            owner = (member.uid, member.gid, member.uname, member.gname)
            if (kind, member.mode) not in allowed or owner != (0, 0, "", ""):
                odd[member.name] = (kind, oct(member.mode), *owner)
        sticky = ("dir", oct(0o1777), 0, 0, "", "")
        self.assertEqual(odd, {"tmp": sticky, "var/tmp": sticky})

    def test_there_is_no_compiler_no_package_manager_and_nothing_else_that_no_job_needs(self) -> None:
        folders = ("bin", "sbin", "local/bin")
        unwanted = tuple(f"usr/{folder}/{command}" for folder in folders for command in self.unwanted_commands)
        folders = ("usr/include/", "usr/share/man/", "usr/share/locale/", "var/cache/", "var/lib/apt", "etc/machine-id",
                   "etc/ld.so.cache", *self.unwanted_folders)  # fmt: skip
        found = [path for path in sorted(self.image.paths) if path in unwanted or path.startswith(folders)]
        self.assertEqual([], found)
        files = (member.name for member in self.image.members if not member.isdir())
        documents = {path for path in files if path.startswith("usr/share/doc/") and path.count("/") > 3}
        self.assertEqual({"copyright"}, {path.rsplit("/", 1)[1] for path in documents})

    def test_what_a_sandbox_mounts_on_and_starts_is_there(self) -> None:
        commands = [f"usr/bin/{command}" for command in ("sh", *self.commands)]
        for path in ("guest", "work", "tmp", "proc", "sys", "dev", *commands):
            self.assertIn(path, self.image.paths)

    def test_every_package_travels_with_its_licence_and_is_visible_to_scanners(self) -> None:
        names = [package["name"] for package in self.record["packages"]]
        wanted = {f"var/lib/dpkg/status.d/{name}" for name in names}
        wanted |= {self.image.tree.resolve(f"usr/share/doc/{name}/copyright") for name in names}
        self.assertEqual(set(), wanted - self.image.paths)

    def test_its_packages_are_those_of_the_lock_file_by_its_label_too(self) -> None:
        lock = Lock.parse((IMAGES / self.name / "packages.amd64.lock").read_text())
        listing = compact([[p.name, p.version, p.architecture, p.sha256] for p in lock.packages])
        self.assertEqual(self.image.config["Labels"]["mayfly.image.packages.sha256"], sha256(listing).hexdigest())
        stated = {}
        for package in lock.packages:
            status = self.image.layer.extractfile(f"var/lib/dpkg/status.d/{package.name}").read().decode()
            stated[package.name] = next(line.split(": ")[1] for line in status.splitlines() if line.startswith("Version: "))
        self.assertEqual(stated, {package.name: package.version for package in lock.packages})

    def test_every_link_leads_to_something(self) -> None:
        self.assertEqual([], self.image.dangling_links())

    def test_it_is_a_valid_oci_layout(self) -> None:
        archive = self.image.archive
        self.assertEqual(json.loads(archive["oci-layout"]), {"imageLayoutVersion": "1.0.0"})
        blobs = {f"sha256:{path.rsplit('/', 1)[1]}": content for path, content in archive.items() if "/" in path}
        for digest, content in blobs.items():
            self.assertEqual(digest, "sha256:" + sha256(content).hexdigest())
        (entry,) = json.loads(archive["index.json"])["manifests"]
        self.assertEqual(entry["digest"], self.record["manifest_digest"])
        manifest = json.loads(blobs[entry["digest"]])
        for descriptor in (entry, manifest["config"], *manifest["layers"]):
            self.assertEqual(descriptor["size"], len(blobs[descriptor["digest"]]))
        self.assertEqual(manifest["config"]["digest"], self.record["image_id"])
        config = json.loads(blobs[manifest["config"]["digest"]])
        self.assertEqual(config["rootfs"]["diff_ids"], [layer["digest"] for layer in manifest["layers"]])
        self.assertFalse({"Volumes", "Healthcheck", "Entrypoint", "OnBuild"} & set(config["config"]))

    @unittest.skipUnless(engine(), "no engine answers: the image was not loaded and run")
    def test_loaded_twice_it_keeps_its_id_and_runs_its_program_on_a_read_only_root(self) -> None:
        docker = engine()
        before = subprocess.run([docker, "image", "inspect", self.record["image_id"]], capture_output=True, check=False)
        for _ in range(2):
            subprocess.run([docker, "load", "--input", self.record["archive"]], stdout=subprocess.DEVNULL, check=True)
        if before.returncode != 0:
            self.addCleanup(subprocess.run, [docker, "rmi", self.record["tag"]], stdout=subprocess.DEVNULL, check=False)
        done = subprocess.run(
            [docker, "run", "--rm", "--network", "none", "--read-only", "--user", "12345:12345", "--tmpfs", "/work:exec,uid=12345",
             "--tmpfs", "/tmp", "--env", "HOME=/work", "--label", "mayfly-image-test", self.record["image_id"], *self.program],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, self.prints, ""))


@needs_apt
class PythonImage(JobImage, unittest.TestCase):
    name = "python"
    largest_bytes = 120_000_000
    unwanted_commands = JobImage.unwanted_commands | {"pip", "pip3"}
    unwanted_folders = ("usr/lib/python3/dist-packages/", "usr/lib/python3.11/ensurepip")
    commands = ("python", "python3")
    program = (
        "python", "-W", "ignore", "-c",
        "import asyncio, ctypes, decimal, distutils, json, lzma, multiprocessing, sqlite3, ssl, subprocess, zoneinfo, cgi\n"
        "assert sqlite3.connect(':memory:').execute('select 1').fetchone() == (1,)\n"
        "assert ctypes.CDLL('libc.so.6').getpid() > 0 and zoneinfo.ZoneInfo('Europe/Paris')\n"
        "assert multiprocessing.get_context('fork').Pool(1).map(abs, [-1]) == [1]\n"
        "assert subprocess.run('echo hi | cat', shell=True, capture_output=True).stdout == b'hi\\n'\n"
        "import os; print(os.path.exists(json.__cached__))",
    )  # fmt: skip
    prints = "True\n"

    def test_another_build_date_gives_another_digest(self) -> None:
        os.environ["SOURCE_DATE_EPOCH"] = "1"
        self.addCleanup(os.environ.pop, "SOURCE_DATE_EPOCH")
        later = build(IMAGES, self.folder / "later", name=self.name)
        self.assertEqual(later["created"], "1970-01-01T00:00:01Z")
        self.assertNotEqual(later["image_id"], self.record["image_id"])

    def test_packages_that_the_mirror_has_dropped_come_from_the_snapshot_service(self) -> None:
        lock = Lock.parse((IMAGES / "python/packages.amd64.lock").read_text())
        stamp = iso(lock.epoch).replace("-", "").replace(":", "")
        for package in lock.packages:
            archive, path = package.snapshot_path
            served = self.folder / "snapshot" / archive / stamp / path
            served.parent.mkdir(parents=True, exist_ok=True)
            served.symlink_to(PACKAGES / package.file_name)

        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_: object) -> None: ...

        handler = partial(Quiet, directory=str(self.folder / "snapshot"))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_port}"
            cache = str(self.folder / "from-snapshot")
            record = run_build(IMAGES, "--cache", cache, "--mirror", f"{url}/gone", "--snapshot", url, name=self.name)
            server.shutdown()
        self.assertEqual(record["image_id"], self.record["image_id"])

    @unittest.skipUnless(shutil.which("skopeo"), "skopeo is not here: only our own check of the archive ran")
    def test_skopeo_reads_it_in_both_formats(self) -> None:
        for transport in ("oci-archive", "docker-archive"):
            shown = subprocess.run(
                ["skopeo", "inspect", "--raw", f"{transport}:{self.record['archive']}"], capture_output=True, check=True
            )
            self.assertEqual(json.loads(shown.stdout)["config"]["digest"], self.record["image_id"])


@needs_apt
class PythonDataImage(JobImage, unittest.TestCase):
    name = "python-data"
    largest_bytes = 400_000_000
    commands = ("python", "python3", "pip")
    program = (
        "python", "-c",
        "import ssl, zipfile, subprocess, sys, os\n"
        "import numpy, pandas, scipy.stats, openpyxl, matplotlib.pyplot as plt\n"
        "from mpl_toolkits.mplot3d import Axes3D\n"
        # OpenBLAS, found in the process as the library that is there.
        "print('openblas' in open('/proc/self/maps').read())\n"
        "numpy.testing.assert_allclose(numpy.linalg.inv(numpy.diag([2.0, 4.0])), numpy.diag([0.5, 0.25]))\n"
        "print(os.path.exists(pandas.__cached__), plt.get_backend(), os.listdir('/work'))\n"
        # What matplotlib has listed itself it would have written here.
        "print(os.listdir('/tmp/matplotlib'))\n"
        "plt.plot([1, 4, 9]); plt.title('Größe $x^2$')\n"
        "for kind in ('png', 'svg', 'pdf'): plt.savefig(f'/work/plot.{kind}')\n"
        "table = pandas.DataFrame({'a': [1, 2], 'b': ['x', None]})\n"
        "table.to_excel('/work/table.xlsx', index=False)\n"
        "assert pandas.read_excel('/work/table.xlsx').equals(table)\n"
        "print(ssl.create_default_context().cert_store_stats()['x509_ca'] > 100)\n"
        # A wheel that a job has brought along.
        "with zipfile.ZipFile('/work/small-1.0-py3-none-any.whl', 'w') as wheel:\n"
        "    info = 'small-1.0.dist-info'\n"
        "    wheel.writestr('small.py', 'here = __file__')\n"
        "    wheel.writestr(f'{info}/METADATA', 'Metadata-Version: 2.1\\nName: small\\nVersion: 1.0\\n')\n"
        "    wheel.writestr(f'{info}/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n"
        "    wheel.writestr(f'{info}/RECORD', '')\n"
        "subprocess.run(['pip', 'install', '-q', '--no-index', '/work/small-1.0-py3-none-any.whl'], check=True)\n"
        "print(subprocess.run([sys.executable, '-c', 'import small; print(small.here)'], capture_output=True, text=True).stdout)",
    )  # fmt: skip
    prints = "True\nTrue agg []\n[]\nTrue\n/work/.local/lib/python3.11/site-packages/small.py\n\n"

    def test_its_list_of_fonts_names_files_of_the_image_in_one_order(self) -> None:
        fonts = json.load(self.image.layer.extractfile("usr/share/matplotlib/fontlist.json"))
        for fonts in (fonts["ttflist"], fonts["afmlist"]):
            names = [font["fname"] for font in fonts]
            own = [name for name in names if not name.startswith("/")]
            self.assertEqual(names[: len(own)], own)
            self.assertEqual(names[len(own) :], sorted(names[len(own) :]))
            paths = {name.lstrip("/") if name.startswith("/") else f"usr/share/matplotlib/mpl-data/{name}" for name in names}
            self.assertEqual(set(), paths - self.image.paths)
            self.assertGreater(len(paths), 30)


@needs_apt
class NodeImage(JobImage, unittest.TestCase):
    name = "node"
    largest_bytes = 125_000_000
    unwanted_commands = JobImage.unwanted_commands | {"npm", "npx", "python3"}
    commands = ("node",)
    program = (
        "node", "-e",
        "const {execSync} = require('child_process'), {Worker} = require('worker_threads'), zlib = require('zlib');\n"
        "console.log(zlib.gunzipSync(zlib.gzipSync('squeezed')).toString());\n"
        "console.log(execSync('echo child | cat').toString().trim());\n"
        "console.log(new Intl.NumberFormat('de').format(1234.5), require('crypto').createHash('sha256').update('').digest('hex').length);\n"
        "require('fs').writeFileSync('/work/file', 'written');\n"
        "new Worker(`require('worker_threads').parentPort.postMessage(6 * 7)`, {eval: true}).on('message', console.log);",
    )  # fmt: skip
    prints = "squeezed\nchild\n1.234,5 64\n42\n"


@needs_apt
class ShellImage(JobImage, unittest.TestCase):
    name = "shell"
    largest_bytes = 35_000_000
    unwanted_commands = JobImage.unwanted_commands | {"python3", "ssh", "curl", "wget", "nc"}
    commands = ("bash", "jq", "grep", "sed", "awk", "find", "xargs", "sort", "diff", "patch", "tar", "gzip", "zcat", "xz",
                "bzip2", "zip", "unzip", "bc", "which")  # fmt: skip
    program = (
        "sh", "-c",
        "names=(b a); cd /work; printf '%s\\n' \"${names[@]}\" | sort | tee list | xz | xzcat | tr '\\n' ' '; echo\n"
        "diff <(sort list) list && gzip list && zcat list.gz | awk '{n = gensub(/a/, \"z\", \"g\"); print n}' | jq -R . | jq -cs .\n"
        "tar -cf all.tar list.gz && tar -tf all.tar; echo 'scale=3; 22/7' | bc; which jq; find . -name '*.tar' | xargs -n 1 basename",
    )  # fmt: skip
    prints = 'a b \n["z","b"]\nlist.gz\n3.142\n/usr/bin/jq\nall.tar\n'
