//! The environment of a job.

use std::collections::BTreeMap;

use mayfly_core::limits::Limits;
use mayfly_protocol::TUNNEL_PORT;

use super::{HOST_NAME, WORK};
use crate::seam::Loopback;

/// What the image and the job may set otherwise.
const USUAL: [(&str, &str); 3] = [
    // Its search for leaks traces the program that ends, which the filter refuses; that program would then fail.
    ("ASAN_OPTIONS", "detect_leaks=0"),
    (
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ),
    ("LANG", "C.UTF-8"),
];

/// Names by which libraries and runtimes are told how many threads to make: they would count the host's CPUs, and
/// numpy fails to import under a low process limit when it does.
const THREADS: [&str; 9] = [
    "BLIS_NUM_THREADS",
    "GOMAXPROCS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "PYTHON_CPU_COUNT",
    "RAYON_NUM_THREADS",
    "UV_THREADPOOL_SIZE",
];

/// Names by which programs are told of a proxy. Some read the one spelling, some the other.
const PROXIES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
/// The same of what is not asked of it.
const NOT_BY_PROXY: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// The whole environment of a job: what is usual, what the image says (`NAME=value`), what the sandbox is, and what the
/// job says, each winning over those before it. Sorted by name.
pub(crate) fn job_environment<'a>(
    limits: &Limits,
    loopback: Loopback,
    image: &[String],
    job: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<(String, String)> {
    let cpus = limits.cpu.whole_cpus().to_string();
    let mut all: BTreeMap<&str, &str> = USUAL.into();
    all.extend(
        image
            .iter()
            .filter_map(|entry| entry.split_once('='))
            .filter(|(name, value)| !name.is_empty() && !value.contains('\0')),
    );
    let proxy = format!("http://127.0.0.1:{TUNNEL_PORT}");
    let mut java = format!("-Djava.io.tmpdir={WORK} -XX:ActiveProcessorCount={cpus}");
    if loopback == Loopback::Open {
        for scheme in ["http", "https"] {
            java.push_str(&format!(
                " -D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={TUNNEL_PORT}"
            ));
        }
        all.extend(PROXIES.map(|name| (name, proxy.as_str())));
        all.extend(NOT_BY_PROXY.map(|name| (name, "localhost,127.0.0.1,::1")));
    }
    all.extend([
        ("HOME", WORK),
        ("USER", "job"),
        ("LOGNAME", "job"),
        ("HOSTNAME", HOST_NAME),
        // `/tmp` is noexec; what builds and then runs something does so here.
        ("TMPDIR", WORK),
        ("JAVA_TOOL_OPTIONS", java.as_str()),
    ]);
    all.extend(THREADS.map(|name| (name, cpus.as_str())));
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let mut all: BTreeMap<_, _> = all.into_iter().map(owned).collect();
    all.extend(job.into_iter().map(owned));
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use mayfly_core::{limits::LimitRules, units::CpuShare};

    use super::*;

    fn value<'a>(environment: &'a [(String, String)], name: &str) -> Option<&'a str> {
        let (_, value) = environment.iter().find(|(found, _)| found == name)?;
        Some(value)
    }

    #[test]
    fn the_job_wins_over_the_sandbox_and_the_sandbox_over_the_image() {
        let limits = LimitRules::default().defaults;
        let image = ["PATH=/image/bin", "HOME=/root", "GONE", "=x"].map(str::to_owned);
        let environment = job_environment(&limits, Loopback::Closed, &image, [("USER", "me")]);
        assert_eq!(value(&environment, "PATH"), Some("/image/bin"));
        assert_eq!(value(&environment, "LANG"), Some("C.UTF-8"));
        assert_eq!(value(&environment, "ASAN_OPTIONS"), Some("detect_leaks=0"));
        assert_eq!(value(&environment, "HOME"), Some("/work"));
        assert_eq!(value(&environment, "USER"), Some("me"));
        assert_eq!(value(&environment, "GONE"), None);
        assert!(environment.iter().all(|(name, _)| !name.is_empty()));
    }

    #[test]
    fn libraries_are_told_the_cpus_that_were_granted() {
        let limits = Limits {
            cpu: CpuShare::millis(1500),
            ..LimitRules::default().defaults
        };
        let environment = job_environment(&limits, Loopback::Closed, &[], []);
        for name in THREADS {
            assert_eq!(value(&environment, name), Some("2"), "{name}");
        }
    }
}
