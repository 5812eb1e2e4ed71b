"""One archive that is both an OCI image layout and a `docker load` archive.

Formats: image-spec 1.1 (image-layout.md, config.md, manifest.md) and the
docker-archive of image-spec "Docker v1.2" (manifest.json). The layer is not
compressed: gzip output differs between zlib versions, so a digest would then
depend on the machine that built it.
"""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from debian import iso

LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


@dataclass(frozen=True)
class Start:
    """How the image's container is started, where its maker says nothing else."""

    command: tuple[str, ...]
    entrypoint: tuple[str, ...] = ()
    user: str = ""
    """`uid:gid`; empty: root."""
    folder: str = "/work"
    path: str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    environment: tuple[str, ...] = ()
    stop_signal: str = ""

    def config(self) -> dict[str, object]:
        given = {
            "Env": [f"PATH={self.path}", "LANG=C.UTF-8", *self.environment],
            "Cmd": list(self.command),
            "Entrypoint": list(self.entrypoint),
            "User": self.user,
            "WorkingDir": self.folder,
            "StopSignal": self.stop_signal,
        }
        return {key: value for key, value in given.items() if value}


@dataclass(frozen=True)
class Archive:
    image_id: str
    """Digest of the config; what an engine with the classic store calls the image's id."""
    manifest_digest: str
    tag: str
    layer_bytes: int


def compact(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def digest(blob: bytes) -> str:
    return "sha256:" + sha256(blob).hexdigest()


def descriptor(media_type: str, blob: bytes, **more: object) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest(blob), "size": len(blob), **more}


def write_archive(
    out: Path,
    name: str,
    architecture: str,
    layer: bytes,
    epoch: int,
    labels: dict[str, str],
    start: Start,
) -> Archive:
    created = iso(epoch)
    config = compact(
        {
            "architecture": architecture,
            "os": "linux",
            "created": created,
            "config": {**start.config(), "Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
            "history": [{"created": created, "created_by": f"deploy/images/{name}/build"}],
        }
    )
    manifest = compact(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, config),
            "layers": [descriptor(LAYER, layer)],
        }
    )
    # A name keeps `docker image prune` away; naming the content lets two builds live side by side.
    tag = f"mayfly/{name}:{sha256(config).hexdigest()[:12]}"
    entry = descriptor(
        MANIFEST,
        manifest,
        platform={"os": "linux", "architecture": architecture},
        annotations={"org.opencontainers.image.ref.name": tag.split(":")[1], "io.containerd.image.name": f"docker.io/{tag}"},
    )
    files = {
        "oci-layout": compact({"imageLayoutVersion": "1.0.0"}),
        "index.json": compact({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}),
        "manifest.json": compact([{"Config": blob_path(config), "RepoTags": [tag], "Layers": [blob_path(layer)]}]),
        **{blob_path(blob): blob for blob in (config, layer, manifest)},
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial")
    with tarfile.open(partial, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for folder in ("blobs", "blobs/sha256"):
            info = tarfile.TarInfo(folder)
            info.type, info.mode, info.mtime = tarfile.DIRTYPE, 0o755, epoch
            archive.addfile(info)
        for path in sorted(files):
            info = tarfile.TarInfo(path)
            info.size, info.mtime = len(files[path]), epoch
            archive.addfile(info, io.BytesIO(files[path]))
    partial.replace(out)
    return Archive(digest(config), digest(manifest), tag, len(layer))


def blob_path(blob: bytes) -> str:
    return f"blobs/sha256/{sha256(blob).hexdigest()}"
