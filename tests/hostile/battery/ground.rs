//! What lies on the host for programs to find, read, reach, change or kill, and whether they have.

use std::{
    collections::BTreeMap,
    fs,
    io::ErrorKind,
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::{MetadataExt as _, PermissionsExt as _},
            net::{SocketAddr, UnixListener},
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use mayfly_core::{digest::Digest, id::SandboxId};
use serde_json::{Map, Value, json};

/// Settings of the kernel that no sandbox may change.
const SETTINGS: [&str; 12] = [
    "kernel/hostname",
    "kernel/domainname",
    "kernel/core_pattern",
    "kernel/modprobe",
    "kernel/panic",
    "kernel/randomize_va_space",
    "kernel/sysrq",
    "kernel/printk",
    "vm/panic_on_oom",
    "vm/overcommit_memory",
    "fs/protected_hardlinks",
    "net/ipv4/ip_forward",
];

/// The key of the System V objects that programs make.
const KEY: &str = "1835104614";

/// Canaries on the host: a file, a process, three listeners, and the host's own settings and image.
pub(crate) struct Ground {
    folder: tempfile::TempDir,
    secret: String,
    abstract_name: String,
    tcp: TcpListener,
    by_path: UnixListener,
    by_name: UnixListener,
    process: Child,
    before: BTreeMap<String, String>,
    layers: Vec<PathBuf>,
}

impl Ground {
    /// Lays it out. `layers` are the folders of the image on this host.
    pub(crate) fn lay(layers: Vec<PathBuf>) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("canary-")
            .tempdir_in("/tmp")
            .expect("a folder for the canaries");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("a mode");
        let secret = secret();
        let file = folder.path().join("file");
        fs::write(&file, &secret).expect("a canary");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("a mode");
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let socket = folder.path().join("socket");
        let by_path = UnixListener::bind(&socket).expect("a listener");
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).expect("a mode");
        let abstract_name = format!("canary-{}", SandboxId::new());
        let address = SocketAddr::from_abstract_name(&abstract_name).expect("a name");
        let by_name = UnixListener::bind_addr(&address).expect("a listener");
        tcp.set_nonblocking(true).expect("a mode");
        by_path.set_nonblocking(true).expect("a mode");
        by_name.set_nonblocking(true).expect("a mode");
        let process = Command::new("sleep")
            .arg("7200")
            .env("CANARY_SECRET", &secret)
            .stdin(Stdio::null())
            .spawn()
            .expect("sleep starts");
        let mut ground = Self {
            folder,
            secret,
            abstract_name,
            tcp,
            by_path,
            by_name,
            process,
            before: BTreeMap::new(),
            layers,
        };
        ground.before = ground.state();
        ground.before.extend(ground.image());
        ground
    }

    /// What must never be in any output.
    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    /// What programs are told, so that nothing is safe for not being known.
    pub(crate) fn env(&self) -> Map<String, Value> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let address = self.tcp.local_addr().expect("an address").to_string();
        let env = json!({
            "CANARY_TCP": address,
            "CANARY_ABSTRACT": self.abstract_name,
            "CANARY_SOCKET": path("socket"),
            "CANARY_FILE": path("file"),
            "CANARY_PID": self.process.id().to_string(),
        });
        env.as_object().expect("an object").clone()
    }

    /// What is not as it was.
    pub(crate) fn faults(&mut self) -> Vec<String> {
        let mut faults = Vec::new();
        let reached = [
            ("TCP", self.tcp.accept().map(drop)),
            ("path", self.by_path.accept().map(drop)),
            ("abstract name", self.by_name.accept().map(drop)),
        ];
        for (name, accepted) in reached {
            if !accepted.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                faults.push(format!("the host's listener by {name} was reached"));
            }
        }
        if !matches!(self.process.try_wait(), Ok(None)) {
            faults.push("the host's process has ended".to_owned());
        }
        for (name, now) in self.state() {
            let before = &self.before[&name];
            if *before != now {
                faults.push(format!("{name} was {before:?} and is {now:?}"));
            }
        }
        faults
    }

    /// The same of the image, which takes longer: every byte of every file of it.
    pub(crate) fn image_faults(&self) -> Vec<String> {
        let changed = self
            .image()
            .into_iter()
            .filter(|(name, now)| self.before[name] != *now);
        changed
            .map(|(name, _)| format!("{name} is not as it was"))
            .collect()
    }

    fn state(&self) -> BTreeMap<String, String> {
        let mut state: BTreeMap<String, String> = SETTINGS
            .iter()
            .map(|name| {
                (
                    format!("/proc/sys/{name}"),
                    read(&Path::new("/proc/sys").join(name)),
                )
            })
            .collect();
        let file = self.folder.path().join("file");
        let entries = fs::read_dir(self.folder.path()).map_or(0, Iterator::count);
        state.insert("the canary".to_owned(), read(&file));
        state.insert("the canary's folder".to_owned(), format!("{entries} entries"));
        for path in [
            &*file,
            Path::new("/dev/null"),
            Path::new("/dev/zero"),
            Path::new("/etc/passwd"),
        ] {
            let found = fs::symlink_metadata(path);
            // Not the owner: Debian's runsc gives the host's /dev/null to nobody with each sandbox.
            let found = found.map(|found| (found.mode(), found.rdev(), found.ino()));
            state.insert(path.display().to_string(), format!("{found:?}"));
        }
        for path in [
            "/work",
            "/dev/shm/canary",
            "/dev/mqueue/canary",
            "/tmp/left",
            "/dev/shm/left",
        ] {
            state.insert(path.to_owned(), format!("there: {}", Path::new(path).exists()));
        }
        for kind in ["shm", "msg", "sem"] {
            let listed = read(Path::new(&format!("/proc/sysvipc/{kind}")));
            let ours = listed
                .lines()
                .any(|line| line.split_whitespace().next() == Some(KEY));
            state.insert(format!("System V {kind} of a program"), format!("there: {ours}"));
        }
        let names = read(Path::new("/proc/net/unix"));
        let left = names
            .lines()
            .any(|line| line.ends_with(" @canary") || line.ends_with(" @own"));
        state.insert("abstract names of programs".to_owned(), format!("there: {left}"));
        state
    }

    fn image(&self) -> BTreeMap<String, String> {
        let digest = |layer: &PathBuf| {
            let mut hashes = Vec::new();
            hash_below(layer, &mut hashes);
            (
                layer.display().to_string(),
                Digest::of(hashes.concat().as_bytes()).to_string(),
            )
        };
        self.layers.iter().map(digest).collect()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// A text that is nowhere by chance, and that programs look for by its form.
pub(crate) fn secret() -> String {
    format!("secret-{}", SandboxId::new().to_string().replace('-', ""))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| error.kind().to_string())
}

/// A line for each file below a folder: its name, mode, and what is in it.
fn hash_below(folder: &Path, hashes: &mut Vec<String>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    entries.sort();
    for path in entries {
        let Ok(found) = fs::symlink_metadata(&path) else {
            continue;
        };
        let content = if found.is_file() {
            Digest::of(&fs::read(&path).unwrap_or_default()).to_string()
        } else {
            String::new()
        };
        hashes.push(format!("{} {:o} {content}\n", path.display(), found.mode()));
        if found.is_dir() {
            hash_below(&path, hashes);
        }
    }
}

#[test]
fn what_is_done_to_a_canary_is_seen() {
    let layer = tempfile::tempdir().expect("a folder");
    fs::write(layer.path().join("program"), "as it was").expect("a file");
    let mut ground = Ground::lay(vec![layer.path().to_owned()]);
    assert_eq!(ground.faults(), Vec::<String>::new());
    assert_eq!(ground.image_faults(), Vec::<String>::new());

    fs::write(layer.path().join("program"), "another!!").expect("a file");
    assert_eq!(ground.image_faults().len(), 1);
    let env = ground.env();
    let told = |name: &str| env[name].as_str().expect("a text");
    fs::write(told("CANARY_FILE"), "written").expect("a file");
    fs::write(Path::new(told("CANARY_FILE")).with_file_name("new"), "").expect("a file");
    std::net::TcpStream::connect(told("CANARY_TCP")).expect("a listener");
    std::os::unix::net::UnixStream::connect(told("CANARY_SOCKET")).expect("a listener");
    let address = SocketAddr::from_abstract_name(told("CANARY_ABSTRACT")).expect("a name");
    std::os::unix::net::UnixStream::connect_addr(&address).expect("a listener");
    ground.process.kill().expect("the process is ours");
    ground.process.wait().expect("the process is ours");
    let faults = ground.faults();
    for seen in [
        "TCP",
        "path",
        "abstract name",
        "process",
        "canary was",
        "folder was",
    ] {
        assert!(
            faults.iter().any(|fault| fault.contains(seen)),
            "{seen}: {faults:?}"
        );
    }
    assert_eq!(faults.len(), 6, "{faults:?}");
}
