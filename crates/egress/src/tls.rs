//! TLS to a server that gets a credential: by its name, with its certificate verified.

use std::{io, sync::Arc, time::Duration};

use tokio::time::timeout;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};

use crate::{HostName, Reason, meter::Metered};

/// Who says that a server is the one that it says it is.
#[derive(Debug, Clone)]
pub enum Trust {
    /// Whoever the host trusts.
    Host,
    /// These certificates in PEM, and no others.
    Only(Vec<u8>),
}

/// Why nobody is trusted.
#[derive(Debug, thiserror::Error)]
pub enum NoTrust {
    /// The host trusts nobody, as far as can be seen.
    #[error("this host has no certificates of authorities: install them, or name some with `ca_file`")]
    Host,
    /// A text that has no certificates.
    #[error("what `ca_file` names has no certificates in PEM, or one that is none")]
    Only,
}

pub(crate) struct Tls(TlsConnector);

impl Tls {
    pub(crate) fn new(trust: Trust) -> Result<Self, NoTrust> {
        let mut roots = RootCertStore::empty();
        match trust {
            Trust::Host => {
                // One that can't be read is one less to trust.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if roots.is_empty() {
                    return Err(NoTrust::Host);
                }
            }
            Trust::Only(pem) => {
                for certificate in CertificateDer::pem_slice_iter(&pem) {
                    let added = certificate.ok().and_then(|one| roots.add(one).ok());
                    added.ok_or(NoTrust::Only)?;
                }
                if roots.is_empty() {
                    return Err(NoTrust::Only);
                }
            }
        }
        let mut config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// TLS on a connection, with a server that has proved to have this name.
    pub(crate) async fn on(
        &self,
        connection: Metered,
        name: &HostName,
        longest: Duration,
    ) -> Result<TlsStream<Metered>, Reason> {
        let name = ServerName::try_from(name.as_str().to_owned()).map_err(|_| Reason::NotTrusted)?;
        let shaking = self.0.connect(name, connection);
        match timeout(longest, shaking).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) if error.kind() == io::ErrorKind::QuotaExceeded => Err(Reason::BytesUsedUp),
            Ok(Err(_)) => Err(Reason::NotTrusted),
            Err(_) => Err(Reason::NotReached),
        }
    }
}
