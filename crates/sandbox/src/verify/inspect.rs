//! The engine's word: `inspect`, field by field against the request.
//!
//! The request is the whole truth. Each field that it sets must be there with that value, and each field that it does
//! not set must be empty, so that a setting which an engine adds by itself (a default of its configuration, a field
//! that is newer than this code) is found too.

use std::collections::BTreeSet;

use bollard::models::{ContainerCreateBody, ContainerInspectResponse, MountPoint};
use mayfly_core::{image::ImagePin, outcome::MismatchSource};
use serde_json::{Map, Value};

use super::Findings;
use crate::{baseline::GUEST_MOUNT, engine::EngineFacts};

/// What an image brings along and what changes nothing: ports that it declares and nobody publishes, texts for builds, times
/// of a health check that `Config.Healthcheck.Test` has turned off.
const FREE: [&str; 9] = [
    "Config.ArgsEscaped",
    "Config.ExposedPorts",
    "Config.Healthcheck.Interval",
    "Config.Healthcheck.Retries",
    "Config.Healthcheck.StartInterval",
    "Config.Healthcheck.StartPeriod",
    "Config.Healthcheck.Timeout",
    "Config.OnBuild",
    "Config.Shell",
];

/// Where absent does not mean off but the engine's own default.
const ABSENT_IS_NOT_OFF: [&str; 2] = ["HostConfig.Init", "HostConfig.MemorySwappiness"];

/// Lists whose order means nothing.
const SETS: [&str; 6] = [
    "Config.Env",
    "HostConfig.CapAdd",
    "HostConfig.CapDrop",
    "HostConfig.MaskedPaths",
    "HostConfig.ReadonlyPaths",
    "HostConfig.SecurityOpt",
];

/// Compares what was asked for with what the engine says.
pub(crate) fn check(
    asked: &ContainerCreateBody,
    pin: &ImagePin,
    guest_volume: &str,
    engine: &EngineFacts,
    found: &ContainerInspectResponse,
) -> Findings {
    let mut findings = Findings::new(MismatchSource::Inspect);
    let (asked_config, asked_host) = halves(asked);
    let found_config = object(&found.config);
    let found_host = object(&found.host_config);
    compare_objects(&mut findings, "Config", &asked_config, &found_config);
    compare_objects(&mut findings, "HostConfig", &asked_host, &found_host);
    check_image(&mut findings, pin, found);
    check_mounts(&mut findings, asked, guest_volume, found.mounts.as_deref());
    check_network(&mut findings, found);
    check_lsm(&mut findings, engine, found);
    findings
}

/// A create body holds the container's configuration and, in one field, the host's part of it; inspect tells them
/// apart.
fn halves(body: &ContainerCreateBody) -> (Map<String, Value>, Map<String, Value>) {
    let mut config = object(&Some(body));
    let host = config.remove("HostConfig");
    let host = host
        .as_ref()
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    config.remove("NetworkingConfig");
    (config, host)
}

fn object(value: &Option<impl serde::Serialize>) -> Map<String, Value> {
    match value.as_ref().map(serde_json::to_value) {
        Some(Ok(Value::Object(map))) => map,
        _ => Map::new(),
    }
}

fn compare_objects(
    findings: &mut Findings,
    path: &str,
    asked: &Map<String, Value>,
    found: &Map<String, Value>,
) {
    let names: BTreeSet<_> = asked.keys().chain(found.keys()).collect();
    for name in names {
        let path = format!("{path}.{name}");
        let asked = asked.get(name).unwrap_or(&Value::Null);
        let found = found.get(name).unwrap_or(&Value::Null);
        compare(findings, &path, asked, found);
    }
}

fn compare(findings: &mut Findings, path: &str, asked: &Value, found: &Value) {
    if FREE.contains(&path) {
        return;
    }
    match (asked, found) {
        // The image's labels are added to ours, and ours win.
        (Value::Object(asked), found) if path == "Config.Labels" => {
            for (name, asked) in asked {
                let found = found.get(name).unwrap_or(&Value::Null);
                compare(findings, &format!("{path}.{name}"), asked, found);
            }
        }
        (Value::Object(asked), Value::Object(found)) => compare_objects(findings, path, asked, found),
        (asked, found) => {
            let same = same(path, asked, found);
            findings.expect(same, path, || asked.to_string(), || found.to_string());
        }
    }
}

fn same(path: &str, asked: &Value, found: &Value) -> bool {
    if asked == found {
        return true;
    }
    if is_empty(asked) && is_empty(found) {
        return !ABSENT_IS_NOT_OFF.contains(&path);
    }
    if SETS.contains(&path) {
        return set(asked) == set(found);
    }
    if path == "HostConfig.Ulimits" {
        return ulimits(asked) == ulimits(found);
    }
    false
}

/// What JSON of an engine holds where nothing was set.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(is_empty),
        // A name alone is a setting: a volume is `{"/data": {}}`.
        Value::Object(map) => map.is_empty(),
    }
}

fn set(list: &Value) -> BTreeSet<String> {
    let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
    items
        .iter()
        .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
        // Some engines give capabilities without the prefix.
        .map(|text| text.strip_prefix("CAP_").map(str::to_owned).unwrap_or(text))
        .collect()
}

fn ulimits(list: &Value) -> BTreeSet<(String, Option<i64>, Option<i64>)> {
    let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
    items
        .iter()
        .map(|item| {
            let name = item["Name"]
                .as_str()
                .unwrap_or_default()
                .trim_start_matches("RLIMIT_")
                .to_lowercase();
            (name, item["Soft"].as_i64(), item["Hard"].as_i64())
        })
        .collect()
}

/// The container's image is the one that was pinned: its id is the digest of its configuration.
fn check_image(findings: &mut Findings, pin: &ImagePin, found: &ContainerInspectResponse) {
    let asked = pin.config_digest.to_string();
    let id = found.image.as_deref().unwrap_or_default();
    let same = id == asked || id == asked.trim_start_matches("sha256:");
    findings.expect(same, "Image", || asked.clone(), || id.to_owned());
}

/// The guest's volume and nothing else. An image with `VOLUME` gets a writable one of the host's whatever we ask.
fn check_mounts(
    findings: &mut Findings,
    asked: &ContainerCreateBody,
    guest_volume: &str,
    found: Option<&[MountPoint]>,
) {
    let tmpfs = asked
        .host_config
        .as_ref()
        .and_then(|host| host.tmpfs.clone())
        .unwrap_or_default();
    // Podman lists the temporary file systems here, Docker doesn't; both list them in HostConfig.Tmpfs.
    let found: Vec<_> = found
        .unwrap_or_default()
        .iter()
        .filter(|mount| {
            mount.typ.as_deref() != Some("tmpfs")
                || !tmpfs.contains_key(mount.destination.as_deref().unwrap_or_default())
        })
        .collect();
    let describe = |mount: &&MountPoint| {
        format!(
            "{} {} at {} {}",
            mount.typ.as_deref().unwrap_or_default(),
            mount.name.as_deref().unwrap_or("without a name"),
            mount.destination.as_deref().unwrap_or("nowhere"),
            if mount.rw == Some(false) {
                "read-only"
            } else {
                "writable"
            },
        )
    };
    let asked = [format!("volume {guest_volume} at {GUEST_MOUNT} read-only")];
    let found: Vec<_> = found.iter().map(describe).collect();
    findings.expect(found == asked, "Mounts", || asked.join(", "), || found.join(", "));
}

/// No network but `none`, no address, no published port.
fn check_network(findings: &mut Findings, found: &ContainerInspectResponse) {
    let settings = object(&found.network_settings);
    let networks = settings
        .get("Networks")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let names: Vec<_> = networks.keys().cloned().collect();
    findings.expect(
        names.iter().all(|name| name == "none"),
        "NetworkSettings.Networks",
        || "none".to_owned(),
        || names.join(", "),
    );
    let addresses = ["IPAddress", "GlobalIPv6Address", "Gateway", "IPv6Gateway"];
    for (name, network) in &networks {
        for address in addresses {
            let value = &network[address];
            let field = format!("NetworkSettings.Networks.{name}.{address}");
            // Newer engines show the zero value of an address in words.
            let none = is_empty(value) || value.as_str() == Some("invalid IP");
            findings.expect(none, &field, || "none".to_owned(), || value.to_string());
        }
    }
    let ports = settings.get("Ports").unwrap_or(&Value::Null);
    // Declared by the image and bound to nothing, a port is `null`.
    let bound = ports
        .as_object()
        .is_some_and(|ports| !ports.values().all(is_empty));
    findings.expect(
        !bound,
        "NetworkSettings.Ports",
        || "none".to_owned(),
        || ports.to_string(),
    );
}

/// Where the engine has AppArmor, the container is under a profile of it.
fn check_lsm(findings: &mut Findings, engine: &EngineFacts, found: &ContainerInspectResponse) {
    let has_apparmor = engine
        .security_options
        .iter()
        .any(|option| option.contains("apparmor"));
    let profile = found.app_armor_profile.as_deref().unwrap_or_default();
    findings.expect(
        !has_apparmor || !matches!(profile, "" | "unconfined"),
        "AppArmorProfile",
        || "a profile".to_owned(),
        || profile.to_owned(),
    );
}

#[cfg(test)]
mod tests;
