//! A way to the engine that can be cut: a socket of the test's own, behind which the machine's engine is.

use std::{
    io,
    net::Shutdown,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Passes bytes on in both directions, unless it is cut.
pub(crate) struct Cut {
    path: PathBuf,
    is_cut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<UnixStream>>>,
}

impl Cut {
    /// A socket in this folder. Its thread ends with the test's process.
    pub(crate) fn new(folder: &Path, engine: &Path) -> Self {
        let cut = Self {
            path: folder.join("engine.sock"),
            is_cut: Arc::default(),
            open: Arc::default(),
        };
        let listener = UnixListener::bind(&cut.path).expect("a socket in the test's folder");
        let (engine, is_cut, open) = (engine.to_owned(), Arc::clone(&cut.is_cut), Arc::clone(&cut.open));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                // An engine that is not there shows as a connection that ends at once.
                pass(client, &engine, &open).ok();
            }
        });
        cut
    }

    /// For `DOCKER_HOST`.
    pub(crate) fn host(&self) -> String {
        format!("unix://{}", self.path.display())
    }

    /// Cuts every connection, and each new one, until [`Cut::heal`].
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        for stream in lock(&self.open).drain(..) {
            // The other end may be gone.
            stream.shutdown(Shutdown::Both).ok();
        }
    }

    pub(crate) fn heal(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}

fn pass(client: UnixStream, engine: &Path, open: &Mutex<Vec<UnixStream>>) -> io::Result<()> {
    let server = UnixStream::connect(engine)?;
    lock(open).extend([client.try_clone()?, server.try_clone()?]);
    for (mut from, mut to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        thread::spawn(move || {
            io::copy(&mut from, &mut to).ok();
            // The other direction goes on: an attached client may have said all it has to say.
            to.shutdown(Shutdown::Write).ok();
        });
    }
    Ok(())
}

fn lock(open: &Mutex<Vec<UnixStream>>) -> MutexGuard<'_, Vec<UnixStream>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}
