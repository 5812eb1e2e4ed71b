"""What recipes are made of, where they must refuse or say something."""

import unittest

from support import IMAGES  # noqa: F401

from cpython import ForeignMachine, unpacked
from debian import BuildError
from scripts import bundle_certificates, replace
from tree import Tree


class RecipeParts(unittest.TestCase):
    def test_a_text_that_is_not_there_once_is_not_replaced(self) -> None:
        for content in (b"none", b"old and old"):
            tree = Tree()
            tree.add_file("etc/rc", content)
            with self.assertRaisesRegex(BuildError, "/etc/rc holds . times the text"):
                replace(tree, "etc/rc", b"old", b"new")
            self.assertEqual(tree.entries["etc/rc"].content, content)
        with self.assertRaisesRegex(BuildError, "/etc/rc holds 0 times"):
            replace(Tree(), "etc/rc", b"old", b"new")

    def test_an_image_without_certificates_has_no_empty_bundle(self) -> None:
        with self.assertRaisesRegex(BuildError, "ca-certificates"):
            bundle_certificates(Tree())

    def test_programs_of_another_machine_are_told_from_programs_that_fail(self) -> None:
        loader = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
        for content, error in ((b"\x7fELF of another machine", ForeignMachine), (b"#!/bin/sh\necho broken; exit 1\n", BuildError)):
            tree = Tree()
            tree.add_file(loader, content, executable=True)
            with unpacked(tree, "amd64") as on_disk, self.assertRaises(error):
                on_disk.python("-c", "print(1)")
