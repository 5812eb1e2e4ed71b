//! A certificate of nobody's, for servers of tests on loopback.
#![expect(clippy::unwrap_used, reason = "what is not there ends a test")]

use std::{path::Path, process::Command, sync::Arc};

use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

/// A certificate that nobody else trusts, and its key, in PEM.
pub struct Certificate {
    /// The certificate, which is its own authority.
    pub chain: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
}

impl Certificate {
    /// One for this server, `DNS:a.test` or `IP:127.0.0.1`; none where `openssl` is not there to make it.
    ///
    /// # Panics
    /// Where that fails, or the folder can't be read.
    #[must_use]
    pub fn of(server: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let (chain, key) = (folder.path().join("chain.pem"), folder.path().join("key.pem"));
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ])
            .args(["-nodes", "-days", "2", "-subj", "/CN=mayfly", "-addext"])
            .arg(format!("subjectAltName={server}"))
            // One of an authority is refused for a server.
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&chain)
            .output()
            .ok()?;
        assert!(made.status.success(), "{made:?}");
        let read = |path: &Path| std::fs::read(path).unwrap();
        Some(Self {
            chain: read(&chain),
            key: read(&key),
        })
    }

    /// Serves TLS with it.
    ///
    /// # Panics
    /// Where it was not made here.
    #[must_use]
    pub fn acceptor(&self) -> TlsAcceptor {
        let chain = CertificateDer::pem_slice_iter(&self.chain).collect::<Result<_, _>>();
        let key = PrivateKeyDer::from_pem_slice(&self.key).unwrap();
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain.unwrap(), key);
        TlsAcceptor::from(Arc::new(config.unwrap()))
    }
}
