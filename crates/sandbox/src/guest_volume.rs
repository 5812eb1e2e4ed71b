//! The volume that holds the guest and the files beside it: filled once for each engine, architecture and build, mounted
//! read-only into each sandbox.
//!
//! Whoever creates the volume fills it, and nobody else ever writes to it: the creation is the engine's own decision
//! between processes that race, and a label says who won. Everybody checks the content before the first use. A volume
//! that stays wrong (its maker died, or somebody wrote to it) is left to those who use it, and the next one is made.

use std::{
    collections::{BTreeSet, HashMap},
    io::Read,
    path::Component,
    time::Duration,
};

use bollard::models::{ContainerCreateBody, HostConfig, Mount, MountType, MountVolumeOptions};
use mayfly_core::id::SandboxId;

use crate::{
    baseline::{GUEST_MOUNT, GUEST_PATH, label},
    engine::Engine,
    error::EngineError,
    guest_binary::{GuestBinary, GuestFile, HOOK_FOLDER},
};

/// Says which process fills a volume.
const FILLER: &str = "mayfly.guest.filler";
/// How long another process may take to fill a volume before it counts as dead.
const FILL_LIMIT: Duration = Duration::from_secs(20);
/// How often the content is looked at meanwhile.
const FILL_POLL: Duration = Duration::from_millis(250);
/// Volumes of one build that are tried before the engine counts as broken.
const GENERATIONS: u32 = 5;

/// Makes sure that a volume with exactly this guest exists and returns its name. `image` is any image of the engine:
/// its content plays no part, the container made of it never runs.
pub(crate) async fn ensure(
    engine: &Engine,
    guest: &GuestBinary,
    image: &str,
    deployment: &str,
    expires: i64,
) -> Result<String, EngineError> {
    let me = SandboxId::new().to_string();
    let short = &guest.digest().to_hex()[..16];
    for generation in 1..=GENERATIONS {
        let name = format!("mayfly-guest-{}-{short}-{generation}", guest.architecture());
        let mut labels = HashMap::from([
            (FILLER.to_owned(), me.clone()),
            (label::DEPLOYMENT.to_owned(), deployment.to_owned()),
        ]);
        let found = engine.ensure_volume(&name, labels.clone()).await?;
        labels.insert(label::EXPIRES.to_owned(), expires.to_string());
        let holder = Holder::create(engine, &name, image, labels).await?;
        let settled = settle(engine, &holder, guest, found.get(FILLER) == Some(&me)).await;
        holder.remove(engine).await;
        if settled? {
            return Ok(name);
        }
        tracing::warn!(
            volume = name,
            "a volume for the guest has other content; making another one"
        );
    }
    Err(EngineError::Guest(format!(
        "{GENERATIONS} volumes have other content than the guest that was put into them"
    )))
}

/// Fills the volume where that is ours to do, and waits for the right content.
async fn settle(
    engine: &Engine,
    holder: &Holder,
    guest: &GuestBinary,
    mine: bool,
) -> Result<bool, EngineError> {
    if mine {
        let archive = archive(&guest.files());
        engine.put_archive(&holder.id, GUEST_MOUNT, archive).await?;
        return holder.has(engine, &guest.files()).await;
    }
    let filled = async {
        while !holder.has(engine, &guest.files()).await? {
            tokio::time::sleep(FILL_POLL).await;
        }
        Ok(true)
    };
    tokio::time::timeout(FILL_LIMIT, filled)
        .await
        .unwrap_or(Ok(false))
}

/// A container that never runs, through which the engine reads and writes the volume.
struct Holder {
    id: String,
}

impl Holder {
    async fn create(
        engine: &Engine,
        volume: &str,
        image: &str,
        labels: HashMap<String, String>,
    ) -> Result<Self, EngineError> {
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            entrypoint: Some(vec![GUEST_PATH.to_owned()]),
            labels: Some(labels),
            host_config: Some(HostConfig {
                network_mode: Some("none".to_owned()),
                mounts: Some(vec![Mount {
                    typ: Some(MountType::VOLUME),
                    source: Some(volume.to_owned()),
                    target: Some(GUEST_MOUNT.to_owned()),
                    volume_options: Some(MountVolumeOptions {
                        no_copy: Some(true),
                        ..Default::default()
                    }),
                    ..Default::default()
                }]),
                ..Default::default()
            }),
            ..Default::default()
        };
        let name = format!("mayfly-guest-holder-{}", SandboxId::new());
        let id = engine.create_container(&name, body).await?;
        Ok(Self { id })
    }

    /// Whether the volume holds exactly these files.
    async fn has(&self, engine: &Engine, wanted: &[GuestFile<'_>]) -> Result<bool, EngineError> {
        let archive = engine.get_archive(&self.id, GUEST_MOUNT).await?;
        Ok(archive.is_some_and(|archive| holds_exactly(&archive, wanted)))
    }

    async fn remove(self, engine: &Engine) {
        if let Err(error) = engine.remove(&self.id).await {
            tracing::warn!(
                container = self.id,
                error = crate::error::chain(&error),
                "a container that never ran could not be removed"
            );
        }
    }
}

/// Mode of the folder beside the binary: whoever runs as the job reads in it.
const FOLDER_MODE: u32 = 0o555;

/// The files as an archive of root's.
fn archive(files: &[GuestFile<'_>]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut append = |path: &str, kind, mode, bytes: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_size(bytes.len() as u64);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        archive
            .append_data(&mut header, path, bytes)
            .expect("writing to memory does not fail");
    };
    append(HOOK_FOLDER, tar::EntryType::Directory, FOLDER_MODE, &[]);
    for file in files {
        append(file.path, tar::EntryType::Regular, file.mode, file.bytes);
    }
    archive.into_inner().expect("writing to memory does not fail")
}

/// Whether an archive of the volume's folder holds these files, with their modes, and nothing else.
fn holds_exactly(archive: &[u8], wanted: &[GuestFile<'_>]) -> bool {
    let mut found = BTreeSet::new();
    let mut look = || {
        for entry in tar::Archive::new(archive).entries()? {
            let mut entry = entry?;
            // Engines put the folder's own name in front.
            let path = entry.path()?.into_owned();
            let parts = path
                .components()
                .filter(|part| *part != Component::CurDir)
                .skip(1);
            let path = parts.collect::<std::path::PathBuf>();
            let mode = entry.header().mode()? & 0o7777;
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            let path = path.to_string_lossy().into_owned();
            found.insert((path, entry.header().entry_type().as_byte(), mode, bytes));
        }
        std::io::Result::Ok(())
    };
    if look().is_err() {
        return false;
    }
    // The volume's own folder: the engine made it, and the job looks through it.
    found.retain(|(path, ..)| !path.is_empty());
    let folder = tar::EntryType::Directory.as_byte();
    let mut expected = BTreeSet::from([(HOOK_FOLDER.to_owned(), folder, FOLDER_MODE, Vec::new())]);
    let file = tar::EntryType::Regular.as_byte();
    expected.extend(
        wanted
            .iter()
            .map(|wanted| (wanted.path.to_owned(), file, wanted.mode, wanted.bytes.to_vec())),
    );
    found == expected
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [GuestFile<'static>; 2] = [
        GuestFile {
            path: "mayfly-guest",
            mode: 0o500,
            bytes: b"guest",
        },
        GuestFile {
            path: "python/sitecustomize.py",
            mode: 0o444,
            bytes: b"hook",
        },
    ];

    /// As an engine gives the volume back: below the name of its folder.
    fn read_back(files: &[GuestFile<'_>]) -> Vec<u8> {
        let mut from = tar::Archive::new(std::io::Cursor::new(archive(files)));
        let mut to = tar::Builder::new(Vec::new());
        let mut folder = tar::Header::new_ustar();
        folder.set_entry_type(tar::EntryType::Directory);
        folder.set_size(0);
        folder.set_mode(0o755);
        to.append_data(&mut folder, "guest/", std::io::empty()).unwrap();
        for entry in from.entries().unwrap() {
            let entry = entry.unwrap();
            let (mut header, path) = (entry.header().clone(), entry.path().unwrap().into_owned());
            to.append_data(&mut header, std::path::Path::new("guest").join(path), entry)
                .unwrap();
        }
        to.into_inner().unwrap()
    }

    #[test]
    fn what_is_put_into_the_volume_reads_back() {
        assert!(holds_exactly(&read_back(&FILES), &FILES));
    }

    #[test]
    fn anything_missing_other_or_more_is_another_volume() {
        let with = |change: fn(&mut Vec<GuestFile<'static>>)| {
            let mut files = FILES.to_vec();
            change(&mut files);
            holds_exactly(&read_back(&files), &FILES)
        };
        assert!(!with(|files| files.truncate(1)));
        assert!(!with(|files| files[1].bytes = b"hooK"));
        assert!(!with(|files| files[0].mode = 0o555));
        assert!(!with(|files| files.push(GuestFile {
            path: "python/os.py",
            ..FILES[1]
        })));
        assert!(!holds_exactly(b"no archive", &FILES));
        assert!(!holds_exactly(&[], &FILES));
    }
}
