//! Where the server is, and whether a key may travel there.

use std::{fmt, net::IpAddr};

use reqwest::Url;

/// The address of a server that a key may be sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    url: Url,
}

/// Why an address is none that a key may be sent to.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// It is no URL.
    #[error("`{text}` is no URL: expected one such as https://mayfly.example.com")]
    NotAUrl {
        /// What was given.
        text: String,
    },
    /// It is a URL of something else.
    #[error("`{url}` does not begin with https:// or http://")]
    Scheme {
        /// What was given.
        url: String,
    },
    /// It holds more than where the server is.
    #[error(
        "the address of the server holds a user, a password, a query or a fragment; the key is a setting of its own"
    )]
    TooMuch,
    /// Whoever is on the way would read the key.
    #[error(
        "{host} is not this host, and over http:// everybody on the way to it reads the API key: use https://, or allow \
         it with the setting `client.allow_plain_http` where the way there is safe by other means"
    )]
    PlainHttp {
        /// The host.
        host: String,
    },
}

impl ServerUrl {
    /// Reads an address. Plain HTTP is for the host itself; elsewhere it has to be allowed.
    ///
    /// # Errors
    /// Text that is no address of a server, and plain HTTP where it is not allowed.
    pub fn parse(text: &str, allow_plain_http: bool) -> Result<Self, AddressError> {
        let not_a_url = || AddressError::NotAUrl {
            text: text.chars().take(200).collect(),
        };
        // Before anything is said of the text: it may hold a password.
        if text.contains('@') {
            return Err(AddressError::TooMuch);
        }
        let mut url = Url::parse(text).map_err(|_| not_a_url())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(AddressError::Scheme {
                url: text.chars().take(200).collect(),
            });
        }
        if !url.username().is_empty()
            || url.password().is_some()
            || url.query().is_some()
            || url.fragment().is_some()
        {
            return Err(AddressError::TooMuch);
        }
        let host = url.host_str().ok_or_else(not_a_url)?;
        if url.scheme() == "http" && !allow_plain_http && !is_this_host(host) {
            return Err(AddressError::PlainHttp {
                host: host.to_owned(),
            });
        }
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        Ok(Self { url })
    }

    /// Whether what is sent there is not encrypted.
    pub(crate) fn is_plain(&self) -> bool {
        self.url.scheme() == "http"
    }

    /// The address of a route, of these parts below the server's own path.
    pub(crate) fn route(&self, parts: &[&str], query: &[(&str, String)]) -> Url {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(parts);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str().trim_end_matches('/'))
    }
}

/// Whether a host's name means the host itself, without asking anybody (RFC 6761, section 6.3, for `localhost`).
fn is_this_host(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_the_host_itself() {
        for text in [
            "http://127.0.0.1:8420",
            "http://localhost:8420/",
            "http://[::1]:8420",
            "http://127.9.9.9",
        ] {
            assert!(ServerUrl::parse(text, false).is_ok(), "{text}");
        }
        for text in [
            "http://mayfly.example.com",
            "http://localhost.example.com",
            "http://10.0.0.1:8420",
            "http://0.0.0.0:8420",
            "http://[::ffff:10.0.0.1]",
            "http://127.0.0.1.example.com",
        ] {
            let refused = ServerUrl::parse(text, false);
            assert!(
                matches!(refused, Err(AddressError::PlainHttp { .. })),
                "{text}: {refused:?}"
            );
            assert!(ServerUrl::parse(text, true).is_ok(), "{text}");
            let encrypted = text.replace("http://", "https://");
            assert!(ServerUrl::parse(&encrypted, false).is_ok(), "{encrypted}");
        }
    }

    #[test]
    fn an_address_is_no_place_for_secrets_and_none_is_repeated() {
        for text in [
            "https://user:hunter2@h",
            "https://user@h",
            "https://h/?key=hunter2",
            "https://h/#hunter2",
            "https://hunter2@",
        ] {
            let error = ServerUrl::parse(text, true).unwrap_err();
            assert!(matches!(error, AddressError::TooMuch), "{text}: {error}");
            assert!(!error.to_string().contains("hunter2"));
        }
        for text in ["", "mayfly.example.com", "/run/mayfly.sock"] {
            assert!(ServerUrl::parse(text, true).is_err(), "{text}");
        }
        assert!(matches!(
            ServerUrl::parse("unix:///run/mayfly.sock", true),
            Err(AddressError::Scheme { .. })
        ));
    }

    #[test]
    fn a_route_lies_below_the_servers_own_path_and_its_parts_stay_parts() {
        for text in ["https://h/mayfly", "https://h/mayfly/"] {
            let server = ServerUrl::parse(text, false).unwrap();
            let query = [("cursor", "a b&c".to_owned())];
            let url = server.route(&["v1", "images", "a/../b"], &query);
            assert_eq!(
                url.as_str(),
                "https://h/mayfly/v1/images/a%2F..%2Fb?cursor=a+b%26c"
            );
            assert_eq!(server.to_string(), "https://h/mayfly");
        }
    }
}
