"""The images of a fleet's own processes."""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from support import IMAGES, Unpacked, build, needs_apt


def odd_mode(mode: int) -> bool:
    return bool(mode & 0o6000 or (mode & 0o022 and not mode & 0o1000))


class FleetImages:
    """What holds of the images that are a fleet's own processes."""

    name = ""
    options: tuple[str, ...] = ()
    uid = 0
    owned: dict[str, int] = {}
    """Folders that the image's user owns, with their modes."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Path(tempfile.mkdtemp(prefix="mayfly-image-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.record = build(IMAGES, cls.folder / "one", *cls.options, name=cls.name)
        cls.image = Unpacked(cls.record)

    def test_the_same_inputs_give_the_same_image(self) -> None:
        again = build(IMAGES, self.folder / "two", *self.options, umask=0o077, name=self.name)
        self.assertEqual(again["image_id"], self.record["image_id"])

    def test_it_does_not_run_as_root(self) -> None:
        self.assertEqual(self.image.config["User"], f"{self.uid}:{self.uid}")

    def test_its_user_owns_the_folders_of_its_data_and_nothing_else(self) -> None:
        owned = {member.name: member.mode for member in self.image.members if member.uid or member.gid}
        self.assertEqual(owned, self.owned)
        self.assertEqual({self.uid}, {member.uid for member in self.image.members if member.uid or member.gid})

    def test_no_file_is_setuid_setgid_or_writable_by_others(self) -> None:
        odd = {m.name: oct(m.mode) for m in self.image.members if not m.issym() and odd_mode(m.mode)}
        sticky = {m.name for m in self.image.members if m.mode & 0o1000}
        self.assertEqual(odd, {})
        self.assertLessEqual(sticky, {"tmp", "var/tmp", "run/lock"})

    def test_every_link_leads_to_something(self) -> None:
        self.assertEqual([], self.image.dangling_links())


@needs_apt
class ServiceImage(FleetImages, unittest.TestCase):
    name = "service"
    # Any program does: what is in it is tested by the fleet that runs from the image.
    options = ("--program", "/usr/bin/true")
    uid = 10001
    owned = {"var/lib/mayfly": 0o700}

    def test_another_program_gives_another_image(self) -> None:
        other = build(IMAGES, self.folder / "other", "--program", "/usr/bin/false", name=self.name)
        self.assertNotEqual(other["image_id"], self.record["image_id"])

    def test_a_program_that_is_not_there_or_of_another_machine_is_refused_in_a_sentence(self) -> None:
        script = self.folder / "script"
        script.write_text("#!/bin/sh\n")
        for program, words in ((self.folder / "none", "No such file"), (script, "is no Linux program for amd64")):
            done = subprocess.run(
                [sys.executable, IMAGES / "service/build", "--arch", "amd64", "--program", program],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr)

    def test_certificates_are_in_one_bundle(self) -> None:
        bundle = next(member for member in self.image.members if member.name == "etc/ssl/certs/ca-certificates.crt")
        self.assertGreater(bundle.size, 100_000)


@needs_apt
class PostgresImage(FleetImages, unittest.TestCase):
    name = "postgres"
    uid = 999
    owned = {"var/lib/postgresql/data": 0o700, "run/postgresql": 0o755}


@needs_apt
class RabbitmqImage(FleetImages, unittest.TestCase):
    name = "rabbitmq"
    uid = 999
    owned = {"var/lib/rabbitmq": 0o750, "var/log/rabbitmq": 0o755, "etc/rabbitmq": 0o755, "etc/rabbitmq/conf.d": 0o755}
