//! Addresses of the deployment's own services, which no job reaches whatever its policy allows.

use mayfly_core::egress::IpNet;
use mayfly_settings::{Settings, SettingsError};

/// Those of the settings, and those that the broker and the engine have now.
pub(super) async fn addresses(settings: &Settings, broker: &str) -> Result<Vec<IpNet>, SettingsError> {
    let mut own = settings.executor.own_addresses()?;
    for url in [broker, &settings.sandbox.engine] {
        let Some(host) = host_of(url) else {
            continue;
        };
        match tokio::net::lookup_host((host, 0)).await {
            Ok(found) => own.extend(found.map(|address| IpNet::from(address.ip()))),
            Err(error) => tracing::warn!(
                host,
                %error,
                "the address of a service of ours can't be looked up: jobs are kept from it by `executor.own_addresses` alone"
            ),
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
