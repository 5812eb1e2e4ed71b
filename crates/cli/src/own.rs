//! Addresses of the deployment's own services, which no job reaches whatever its policy allows.

use std::time::Duration;

use mayfly_core::egress::IpNet;
use mayfly_settings::{Settings, SettingsError};

/// The wait between two looks for a name that nobody knows yet.
const PAUSE: Duration = Duration::from_secs(2);

/// Those of the settings, and those that the engine and the `others` have now, by their URLs. A name that can't be looked up is
/// waited for: without its address a job could reach what it stands for.
pub(crate) async fn addresses(settings: &Settings, others: &[&str]) -> Result<Vec<IpNet>, SettingsError> {
    let mut own = settings.executor.own_addresses()?;
    let hosts = others.iter().copied().chain([settings.sandbox.engine.as_str()]);
    for host in hosts.filter_map(host_of) {
        let mut is_said = false;
        loop {
            match tokio::net::lookup_host((host, 0)).await {
                Ok(found) => {
                    own.extend(found.map(|address| IpNet::from(address.ip())));
                    break;
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_said, true) {
                        tracing::warn!(
                            host,
                            %error,
                            "the address of a service of ours can't be looked up, and no job is taken before: it is tried again"
                        );
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
    Ok(own)
}

/// The host of an address with one; none, where it is a socket of this host.
fn host_of(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    if scheme == "unix" {
        return None;
    }
    let authority = rest.split(['/', '?']).next()?;
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    let host = match place.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?.0,
        None => place.split(':').next()?,
    };
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_address_is_found() {
        for (url, host) in [
            ("amqp://user:pass@broker.example:5672/%2f", Some("broker.example")),
            ("amqps://broker.example", Some("broker.example")),
            ("amqp://u:p@[fd12::1]:5672/", Some("fd12::1")),
            ("tcp://10.0.0.7:2376", Some("10.0.0.7")),
            ("unix:///var/run/docker.sock", None),
            ("/var/run/docker.sock", None),
            ("", None),
        ] {
            assert_eq!(host_of(url), host, "{url}");
        }
    }
}
