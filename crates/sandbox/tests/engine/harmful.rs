//! Images that were made to harm: what an image says of itself, and what lies in it, changes nothing about a sandbox, or
//! there is no sandbox. Each is the Python image with one more layer, or with another configuration.

use std::{collections::BTreeMap, io::Read as _, path::Path};

use bollard::query_parameters as query;
use futures_util::StreamExt as _;
use mayfly_core::{digest::Digest, outcome::EndState, run::RunReport};
use mayfly_sandbox::{
    images::{ImageError, Images},
    seam::{PrepareError, Sandbox as _},
};
use serde_json::{Value, json};
use tar::{EntryType, Header};

use crate::support::{Bench, docker, on_gvisor, text};

/// The Python image, taken apart: what `docker save` gives of it.
struct Base {
    config: Value,
    layers: Vec<Vec<u8>>,
}

impl Base {
    async fn of(bench: &Bench) -> Self {
        let engine = docker().await;
        let id = bench.image.config_digest.to_string();
        let mut saved = engine.export_image(&id);
        let mut bytes = Vec::new();
        while let Some(part) = saved.next().await {
            bytes.extend_from_slice(&part.unwrap());
        }
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(&bytes[..]).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.insert(entry.path().unwrap().display().to_string(), content);
        }
        let manifest: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        let config = manifest[0]["Config"].as_str().unwrap();
        let layers = manifest[0]["Layers"].as_array().unwrap().iter();
        Self {
            config: serde_json::from_slice(&files[config]).unwrap(),
            layers: layers.map(|name| files[name.as_str().unwrap()].clone()).collect(),
        }
    }

    /// A file of the image.
    fn file(&self, path: &str) -> Vec<u8> {
        for layer in &self.layers {
            for entry in tar::Archive::new(&layer[..]).entries().unwrap() {
                let mut entry = entry.unwrap();
                if entry.path().unwrap() == Path::new(path) {
                    let mut content = Vec::new();
                    entry.read_to_end(&mut content).unwrap();
                    return content;
                }
            }
        }
        panic!("the image has no {path}");
    }

    /// The same image with these fields of its configuration, and with these layers on top, as a docker-archive.
    fn with(&self, changes: &Value, layers: &[Vec<u8>], tag: &str, to: &Path) {
        let mut config = self.config.clone();
        for (name, value) in changes.as_object().into_iter().flatten() {
            config["config"][name] = value.clone();
        }
        let all: Vec<&Vec<u8>> = self.layers.iter().chain(layers).collect();
        config["rootfs"]["diff_ids"] = all.iter().map(|layer| json!(Digest::of(layer))).collect();
        // It has an entry for each layer, or none.
        config.as_object_mut().unwrap().remove("history");
        let config = serde_json::to_vec(&config).unwrap();
        let config_name = format!("{}.json", Digest::of(&config).to_hex());
        let names: Vec<String> = (0..all.len()).map(|n| format!("{n}.tar")).collect();
        let manifest = json!([{"Config": config_name, "RepoTags": [tag], "Layers": names}]).to_string();
        let mut archive = tar::Builder::new(std::fs::File::create(to).unwrap());
        let mut add = |name: &str, content: &[u8]| {
            let mut header = Header::new_ustar();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, name, content).unwrap();
        };
        for (name, layer) in names.iter().zip(all) {
            add(name, layer);
        }
        add(&config_name, &config);
        add("manifest.json", manifest.as_bytes());
        archive.finish().unwrap();
    }
}

/// One entry of a layer.
enum Entry<'a> {
    File {
        mode: u32,
        owner: u32,
        content: &'a [u8],
    },
    Folder {
        mode: u32,
    },
    Link(&'a str),
    Pipe,
    /// Major and minor number.
    Block(u32, u32),
    Character(u32, u32),
}

fn layer(entries: &[(&str, Entry<'_>)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, entry) in entries {
        let mut header = Header::new_ustar();
        header.set_size(0);
        header.set_mode(0o777);
        let mut data: &[u8] = &[];
        match entry {
            Entry::File { mode, owner, content } => {
                header.set_entry_type(EntryType::Regular);
                header.set_mode(*mode);
                header.set_uid(u64::from(*owner));
                header.set_gid(u64::from(*owner));
                header.set_size(content.len() as u64);
                data = content;
            }
            Entry::Folder { mode } => {
                header.set_entry_type(EntryType::Directory);
                header.set_mode(*mode);
            }
            Entry::Link(to) => {
                header.set_entry_type(EntryType::Symlink);
                header.set_link_name_literal(to).unwrap();
            }
            Entry::Pipe => header.set_entry_type(EntryType::Fifo),
            Entry::Block(major, minor) | Entry::Character(major, minor) => {
                let block = matches!(entry, Entry::Block(..));
                header.set_entry_type(if block { EntryType::Block } else { EntryType::Char });
                header.set_device_major(*major).unwrap();
                header.set_device_minor(*minor).unwrap();
            }
        }
        tar.append_data(&mut header, path, data).unwrap();
    }
    tar.into_inner().unwrap()
}

/// A bench on which that image is the jobs' image, and the image's name.
async fn bench_with(mut bench: Bench, base: &Base, changes: &Value, layers: &[Vec<u8>]) -> Bench {
    let tag = format!("mayfly-test/harmful:{}", bench.deployment);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image.tar");
    base.with(changes, layers, &tag, &file);
    let images = Images::new(bench.sandboxes.engine().clone());
    images.load(&file).await.unwrap();
    bench.image = images.pin(&tag).await.unwrap();
    bench
}

async fn remove(bench: &Bench) {
    let id = bench.image.config_digest.to_string();
    // A run that was broken off may have left another name of it.
    let all = query::RemoveImageOptions {
        force: true,
        ..Default::default()
    };
    docker().await.remove_image(&id, Some(all), None).await.unwrap();
}

/// What a program printed, where all of it went as it should.
fn printed(report: &RunReport) -> String {
    assert_eq!(report.outcome.state, EndState::Succeeded, "{report:?}");
    text(&report.stdout)
}

/// Where something is mounted, and what `/etc` holds: a sandbox that leads somewhere else differs in one of them.
const LOOKS: &str = "import os
open('/work/x', 'w').close(); open('/tmp/x', 'w').close(); open('/dev/shm/x', 'w').close()
print(os.getcwd(), sorted(os.listdir('/etc')), sorted(line.split()[4] for line in open('/proc/self/mountinfo')))
";

#[tokio::test]
async fn folders_that_lead_elsewhere_make_no_sandbox_or_change_nothing_in_it() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let base = Base::of(&bench).await;
    let plain = printed(&bench.run(bench.python(LOOKS)).await);
    let file = || Entry::File {
        mode: 0o644,
        owner: 0,
        content: b"",
    };
    for (at, entry) in [
        ("work", Entry::Link("/etc")),
        ("work", Entry::Link("../../../../proc/self/root/etc")),
        ("work", Entry::Link("/nowhere")),
        ("work", Entry::Link("/proc/self/fd/8")),
        ("work", file()),
        ("tmp", Entry::Link("/etc")),
        ("tmp", Entry::Pipe),
        ("dev", Entry::Link("/etc")),
        ("proc", Entry::Link("/etc")),
        ("sys", file()),
    ] {
        let Some(bench) = Bench::set_up().await else {
            return;
        };
        let bench = bench_with(bench, &base, &json!({}), &[layer(&[(at, entry)])]).await;
        let job = bench.python(LOOKS);
        match bench.sandboxes.prepare(bench.request(&job)).await {
            // Where the job's own folders lead elsewhere, the guest finds them mounted there.
            Err(PrepareError::Mismatch(found)) => {
                let field = format!("mounts[/{at}]");
                assert!(
                    found.iter().any(|mismatch| mismatch.field == field),
                    "{at}: {found:?}"
                );
            }
            // The engine does not want it either.
            Err(PrepareError::Engine(_)) => {}
            Err(error) => panic!("{at}: {error}"),
            Ok(sandbox) => {
                // gVisor mounts over the link itself.
                let is_own = matches!(at, "work" | "tmp");
                assert!(!is_own || on_gvisor(), "a sandbox whose /{at} is elsewhere");
                sandbox.discard().await;
                assert_eq!(printed(&bench.run(job).await), plain, "{at}");
            }
        }
        bench.assert_nothing_is_left().await;
        remove(&bench).await;
    }
}

#[tokio::test]
async fn what_an_image_says_of_itself_changes_nothing() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let base = Base::of(&bench).await;
    let program = "import os, signal
status = open('/proc/self/status').read().splitlines()
print(os.getcwd(), os.getuid() == os.geteuid() >= 40000, os.getgroups(), [line for line in status if line.startswith(('Cap', 'NoNew'))])
print(open('/proc/1/cmdline').read().split('\\0')[0], sorted(os.listdir('/')), os.environ['HOME'], os.environ['USER'])
";
    let plain = printed(&bench.run(bench.python(program)).await);
    let huge: Vec<String> = (0..150)
        .map(|n| format!("NAME_{n}={}", "x".repeat(200)))
        .collect();
    let env = [
        "PATH=/usr/bin:/bin",
        "LD_PRELOAD=/nowhere.so",
        "HOME=/root",
        "USER=root",
        "PYTHONHOME=",
    ];
    let env: Vec<&str> = env.into_iter().chain(huge.iter().map(String::as_str)).collect();
    let labels = json!({
        "mayfly.deployment": "of-somebody-else", "mayfly.expires": "1", "mayfly.executor": "x", "mayfly.session": "x",
    });
    for changes in [
        json!({"WorkingDir": "/proc/self/fd/8", "User": "0:0", "StopSignal": "SIGKILL"}),
        json!({
            "WorkingDir": "/proc/self/fd/8/../../../", "User": "no-such-user", "StopSignal": "0", "Env": env,
            "Entrypoint": ["sh", "-c", "touch /work/harm; exec \"$@\""], "Cmd": ["sh", "-c", "exit 3"],
            "Healthcheck": {"Test": ["CMD-SHELL", "touch /work/harm"], "Interval": 1_000_000_000, "Retries": 1},
            "OnBuild": ["RUN touch /harm"], "ExposedPorts": {"1/tcp": {}}, "Shell": ["/harm"], "Labels": labels,
        }),
    ] {
        let Some(bench) = Bench::set_up().await else {
            return;
        };
        let bench = bench_with(bench, &base, &changes, &[]).await;
        assert_eq!(
            printed(&bench.run(bench.python(program)).await),
            plain,
            "{changes}"
        );
        remove(&bench).await;
    }
}

#[tokio::test]
async fn what_lies_in_an_image_gives_no_rights() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let base = Base::of(&bench).await;
    let python = base.file("usr/bin/python3.11");
    let entries = [
        (
            "usr/bin/of-root",
            Entry::File {
                mode: 0o6755,
                owner: 0,
                content: &python,
            },
        ),
        ("usr/open", Entry::Folder { mode: 0o777 }),
        (
            "usr/open/file",
            Entry::File {
                mode: 0o666,
                owner: 0,
                content: b"",
            },
        ),
        (
            "usr/open/closed",
            Entry::File {
                mode: 0o600,
                owner: 0,
                content: b"",
            },
        ),
        ("usr/open/memory", Entry::Character(1, 1)),
        ("usr/open/kernel", Entry::Character(10, 229)),
        ("usr/open/disk", Entry::Block(7, 0)),
    ];
    let program = "import os, subprocess, errno
says = 'import os; print(os.getresuid() == (os.getuid(),) * 3, os.getresgid() == (os.getgid(),) * 3)'
print(subprocess.run(['/usr/bin/of-root', '-c', says], capture_output=True, text=True).stdout.strip())
for name, flags in [('file', os.O_WRONLY), ('new', os.O_WRONLY | os.O_CREAT), ('closed', os.O_RDONLY),
                    ('memory', os.O_RDWR), ('kernel', os.O_RDWR), ('disk', os.O_RDONLY)]:
    try:
        os.open('/usr/open/' + name, flags)
        print(name, 'opened')
    except OSError as error: print(name, 'refused')
";
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let bench = bench_with(bench, &base, &json!({}), &[layer(&entries)]).await;
    assert_eq!(
        printed(&bench.run(bench.python(program)).await),
        "True True\nfile refused\nnew refused\nclosed refused\nmemory refused\nkernel refused\ndisk refused\n"
    );
    remove(&bench).await;
}

#[tokio::test]
async fn an_image_of_more_layers_than_an_engine_takes_is_refused_when_it_is_loaded() {
    let Some(bench) = Bench::set_up().await else {
        return;
    };
    let base = Base::of(&bench).await;
    let layers: Vec<Vec<u8>> = (0..200)
        .map(|n| layer(&[(format!("layer-{n}").as_str(), Entry::Folder { mode: 0o755 })]))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image.tar");
    base.with(&json!({}), &layers, "mayfly-test/layers:1", &file);
    let images = Images::new(bench.sandboxes.engine().clone());
    let error = images.load(&file).await.unwrap_err();
    assert!(matches!(error, ImageError::Load { .. }), "{error}");
    assert!(images.pin("mayfly-test/layers:1").await.is_err());
}
