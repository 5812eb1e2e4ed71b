use mayfly_core::digest::Digest;

use super::*;
use crate::{baseline::sample_engine, verify::lies};

/// A request, and what Docker 20.10 said of the container that was made of it.
const BODY: &str = include_str!("../fixtures/body.json");
const INSPECT: &str = include_str!("../fixtures/inspect.json");

fn body() -> ContainerCreateBody {
    serde_json::from_str(BODY).unwrap()
}

fn checked(found: &Value) -> Option<Findings> {
    let body = body();
    let id: Digest = body.image.as_ref().unwrap().parse().unwrap();
    let pin = ImagePin {
        reference: "python".to_owned(),
        digest: id,
        config_digest: id,
        platform: "linux/amd64".to_owned(),
    };
    let volume = body.host_config.as_ref().unwrap().mounts.as_ref().unwrap()[0]
        .source
        .clone();
    let found = serde_json::from_value(found.clone()).ok()?;
    Some(check(&body, &pin, &volume.unwrap(), &sample_engine(), &found))
}

fn honest() -> Value {
    serde_json::from_str(INSPECT).unwrap()
}

/// What of a lie's place a difference has to name. Inside a list it is the list.
fn named(findings: &Findings, place: &str) -> bool {
    findings
        .mismatches
        .iter()
        .any(|mismatch| place.starts_with(&mismatch.field) || mismatch.field.starts_with(place))
}

#[test]
fn what_an_honest_engine_says_is_accepted() {
    assert_eq!(checked(&honest()).unwrap().mismatches, []);
}

#[test]
fn an_engine_that_lies_about_any_one_field_is_refused_with_that_field_named() {
    let mut caught = 0;
    for lie in lies::about(&honest()) {
        let ours = ["HostConfig", "Config", "Image", "Mounts"]
            .iter()
            .any(|part| lie.place == *part || lie.place.starts_with(&format!("{part}.")));
        // The image's own labels; where the volume is on the host; a name that SELinux hosts want.
        let free = lie.place.starts_with("Config.Labels.")
            && !lie.place.starts_with("Config.Labels.mayfly.e")
            || [
                "Mounts.Source",
                "Mounts.Mode",
                "Mounts.Driver",
                "Mounts.Propagation",
            ]
            .contains(&lie.place.as_str());
        // Fewer zeros are no setting either.
        let free = free || lie.place == "HostConfig.ConsoleSize" && lie.what.starts_with("without");
        let Some(findings) = checked(&lie.document).filter(|_| ours && !free) else {
            continue;
        };
        assert!(
            named(&findings, &lie.place),
            "{} {}: {:?}",
            lie.place,
            lie.what,
            findings.mismatches
        );
        caught += 1;
    }
    eprintln!("{caught} lies named");
    assert!(caught > 120, "{caught}");
}

#[test]
fn an_engine_that_dropped_any_one_field_is_refused_with_that_field_named() {
    let asked = serde_json::to_value(body()).unwrap();
    let mut dropped = 0;
    for (part, fields) in [("Config", &asked), ("HostConfig", &asked["HostConfig"])] {
        for (name, value) in fields.as_object().unwrap() {
            let place = format!("{part}.{name}");
            let default_is_same = is_empty(value) && !ABSENT_IS_NOT_OFF.contains(&place.as_str());
            if name == "HostConfig" || default_is_same {
                continue;
            }
            let mut found = honest();
            found[part].as_object_mut().unwrap().remove(name);
            let findings = checked(&found).unwrap();
            assert!(named(&findings, &place), "{place}: {:?}", findings.mismatches);
            dropped += 1;
        }
    }
    eprintln!("{dropped} fields");
    assert!(dropped > 35, "{dropped}");
}

#[test]
fn what_nobody_asked_for_is_refused_wherever_it_stands() {
    let more = [
        ("HostConfig", "Privileged", true.into()),
        ("HostConfig", "Binds", serde_json::json!(["/:/host"])),
        ("HostConfig", "PidMode", "host".into()),
        ("HostConfig", "UTSMode", "host".into()),
        ("HostConfig", "UsernsMode", "host".into()),
        ("HostConfig", "GroupAdd", serde_json::json!(["0"])),
        (
            "HostConfig",
            "Devices",
            serde_json::json!([{"PathOnHost": "/dev/kvm", "PathInContainer": "/dev/kvm"}]),
        ),
        (
            "HostConfig",
            "Sysctls",
            serde_json::json!({"net.core.somaxconn": "1"}),
        ),
        ("HostConfig", "CgroupParent", "/".into()),
        ("HostConfig", "VolumesFrom", serde_json::json!(["other"])),
        ("HostConfig", "ExtraHosts", serde_json::json!(["a:1.2.3.4"])),
        ("Config", "Volumes", serde_json::json!({"/data": {}})),
    ];
    for (part, name, value) in more {
        let mut found = honest();
        found[part][name] = value;
        let findings = checked(&found).unwrap();
        assert!(
            named(&findings, &format!("{part}.{name}")),
            "{part}.{name}: {:?}",
            findings.mismatches
        );
    }
}

#[test]
fn a_volume_of_the_image_shows_in_the_mounts() {
    let mut found = honest();
    found["Mounts"].as_array_mut().unwrap().push(serde_json::json!(
        {"Type": "volume", "Name": "f00", "Destination": "/data", "RW": true}
    ));
    let findings = checked(&found).unwrap();
    assert_eq!(findings.mismatches.len(), 1);
    assert!(
        findings.mismatches[0].found.contains("/data writable"),
        "{findings:?}"
    );
}

#[test]
fn any_other_network_than_none_is_refused() {
    let mut found = honest();
    found["NetworkSettings"]["Networks"] = serde_json::json!({"bridge": {"IPAddress": "172.17.0.2"}});
    let findings = checked(&found).unwrap();
    assert!(named(&findings, "NetworkSettings.Networks"), "{findings:?}");
}

#[test]
fn an_engine_with_apparmor_that_does_not_use_it_is_refused() {
    let body = body();
    let id: Digest = body.image.as_ref().unwrap().parse().unwrap();
    let pin = ImagePin {
        reference: "python".to_owned(),
        digest: id,
        config_digest: id,
        platform: "linux/amd64".to_owned(),
    };
    let engine = EngineFacts {
        security_options: vec!["name=apparmor".to_owned()],
        ..sample_engine()
    };
    let mut found: ContainerInspectResponse = serde_json::from_str(INSPECT).unwrap();
    for (profile, mismatches) in [("docker-default", 0), ("", 1), ("unconfined", 1)] {
        found.app_armor_profile = Some(profile.to_owned());
        let volume = found.mounts.as_ref().unwrap()[0].name.clone().unwrap();
        let findings = check(&body, &pin, &volume, &engine, &found);
        assert_eq!(findings.mismatches.len(), mismatches, "{profile}: {findings:?}");
    }
}
