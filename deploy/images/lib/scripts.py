"""What the scripts of Debian packages leave behind, which no image here runs."""

from __future__ import annotations

from debian import LIBRARIES, BuildError
from tree import Tree

CERTIFICATES = "usr/share/ca-certificates/mozilla/"
# The script of ca-certificates and its configuration, once the bundle is written.
CERTIFICATES_UNREAD = ("usr/sbin/update-ca-certificates", "etc/ca-certificates*")


def bundle_certificates(tree: Tree) -> None:
    """Writes the file that Debian's ca-certificates writes when it is installed."""
    bundle = b"".join(
        entry.content for path, entry in sorted(tree.entries.items()) if path.startswith(CERTIFICATES) and entry.kind == "file"
    )
    if not bundle:
        raise BuildError("the package ca-certificates is not among this image's, so it has no certificates to bundle.")
    tree.add_file("etc/ssl/certs/ca-certificates.crt", bundle)


def choose_libraries(tree: Tree, architecture: str, folders: dict[str, str]) -> None:
    """Links libraries that several packages offer, each in a folder of its own, as update-alternatives would."""
    for name, folder in folders.items():
        tree.add_link(f"{LIBRARIES[architecture]}/{name}", f"{folder}/{name}")


def replace(tree: Tree, path: str, old: bytes, new: bytes) -> None:
    """Changes the one place of a package's file that holds `old`. Where another version of it has none, nothing is built."""
    content = tree.entries[path].content if path in tree.entries else b""
    if content.count(old) != 1:
        raise BuildError(
            f"/{path} holds {content.count(old)} times the text that this image's recipe changes in it, not once: "
            "its package has changed, and the recipe must follow."
        )
    tree.add_file(path, content.replace(old, new))
