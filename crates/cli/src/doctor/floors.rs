//! The oldest versions that are known to be free of the faults that matter here. One table; each line says why.

/// One line of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Floor {
    pub(crate) component: &'static str,
    /// The same in names: `runc`.
    pub(crate) name: &'static str,
    /// The first good version of each series that has one, ascending; from the last on, all are good.
    pub(crate) at_least: &'static [[u32; 3]],
    /// Which faults lie below it.
    pub(crate) because: &'static str,
}

pub(crate) const FLOORS: &[Floor] = &[
    // docs.docker.com/engine/release-notes/29: archive and copy faults CVE-2026-41567, -41568, -42306, -17106; the bypass
    // of authorization plugins CVE-2026-34040 (29.3.1); AF_ALG refused by default since 29.4.2.
    Floor {
        component: "Docker Engine",
        name: "docker",
        at_least: &[[29, 7, 0]],
        because: "CVE-2026-41567, CVE-2026-41568, CVE-2026-42306, CVE-2026-34040",
    },
    // github.com/opencontainers/runc, security advisories: CVE-2025-31133, -52565, -52881 (November 2025) and
    // CVE-2026-41579 (June 2026).
    Floor {
        component: "runc",
        name: "runc",
        at_least: &[[1, 3, 6], [1, 4, 3], [1, 5, 0]],
        because: "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881, CVE-2026-41579",
    },
    // github.com/containerd/containerd, security advisories: CVE-2024-25621 (November 2025); CVE-2026-53488 and -53492,
    // which need its CRI part.
    Floor {
        component: "containerd",
        name: "containerd",
        at_least: &[[1, 7, 33], [2, 0, 10], [2, 1, 9], [2, 2, 5], [2, 3, 2]],
        because: "CVE-2024-25621, CVE-2026-53488, CVE-2026-53492",
    },
    // kernel.org/category/releases.html: the oldest series that fixes still go to.
    Floor {
        component: "kernel",
        name: "kernel",
        at_least: &[[5, 10, 0]],
        because: "kernel.org fixes no older series",
    },
];

/// What a version is, measured by its floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measured {
    /// At the floor or above it.
    Above,
    /// Below it.
    Below(&'static Floor),
    /// There is no floor for it, or its version can't be read.
    Unknown,
}

/// Measures a version.
pub(crate) fn measure(component: &str, version: &str) -> Measured {
    let floor = FLOORS.iter().find(|floor| floor.component == component);
    match (floor, parse(version)) {
        (Some(floor), Some(version)) if is_below(floor, version) => Measured::Below(floor),
        (Some(_), Some(_)) => Measured::Above,
        _ => Measured::Unknown,
    }
}

impl Floor {
    /// The floor in words: `1.3.6, 1.4.3 or 1.5.0`.
    pub(crate) fn text(&self) -> String {
        let versions: Vec<String> = self
            .at_least
            .iter()
            .map(|[major, minor, patch]| format!("{major}.{minor}.{patch}"))
            .collect();
        match versions.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => versions.concat(),
        }
    }
}

fn is_below(floor: &Floor, version: [u32; 3]) -> bool {
    let series = |[major, minor, _]: [u32; 3]| (major, minor);
    let of_series = floor
        .at_least
        .iter()
        .find(|first| series(**first) == series(version));
    match (of_series, floor.at_least.last()) {
        (Some(first), _) => version < *first,
        (None, Some(last)) => version < *last,
        (None, None) => false,
    }
}

/// `20.10.24+dfsg1`, `1.6.20~ds1`, `6.18.44-fc`, `v2.0.7`: what the distribution has added is no part of it.
fn parse(version: &str) -> Option<[u32; 3]> {
    let version = version.strip_prefix('v').unwrap_or(version);
    let end = version
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(version.len());
    let mut parts = version[..end]
        .split('.')
        .filter(|part| !part.is_empty())
        .map(str::parse);
    let major = parts.next()?.ok()?;
    let mut next = || parts.next().unwrap_or(Ok(0)).ok();
    Some([major, next()?, next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_has_its_own_first_good_version() {
        let below =
            |component: &str, version: &str| matches!(measure(component, version), Measured::Below(_));
        for (component, version, expected) in [
            ("runc", "1.1.5+ds1", true),
            ("runc", "1.3.5", true),
            ("runc", "1.3.6", false),
            ("runc", "1.4.2", true),
            ("runc", "1.4.3", false),
            ("runc", "1.5.0-rc.1", false),
            ("runc", "2.0", false),
            ("Docker Engine", "20.10.24+dfsg1", true),
            ("Docker Engine", "29.6.9", true),
            ("Docker Engine", "29.7.0", false),
            ("containerd", "1.6.20~ds1", true),
            ("containerd", "v1.7.33", false),
            ("containerd", "2.1.8", true),
            ("containerd", "2.4.0", false),
            ("kernel", "4.19.0-27-amd64", true),
            ("kernel", "6.18.44-fc", false),
        ] {
            assert_eq!(below(component, version), expected, "{component} {version}");
        }
    }

    #[test]
    fn what_has_no_floor_or_no_version_is_not_measured() {
        for (component, version) in [
            ("Podman Engine", "5.0"),
            ("runc", ""),
            ("runc", "unknown"),
            ("runc", "99999999999.1"),
        ] {
            assert_eq!(
                measure(component, version),
                Measured::Unknown,
                "{component} {version}"
            );
        }
    }

    #[test]
    fn a_floor_is_written_as_people_say_it() {
        let text = |name| {
            FLOORS
                .iter()
                .find(|floor| floor.component == name)
                .unwrap()
                .text()
        };
        assert_eq!(text("runc"), "1.3.6, 1.4.3 or 1.5.0");
        assert_eq!(text("Docker Engine"), "29.7.0");
        for floor in FLOORS {
            assert!(floor.at_least.is_sorted(), "{}", floor.component);
        }
    }
}
