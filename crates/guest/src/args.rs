//! The guest's arguments, which the executor sets when it creates the container.

use std::ffi::OsString;
use std::time::Duration;

/// What the executor decides at the container's creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Args {
    /// User and group of the guest.
    pub(crate) guest_id: u32,
    /// User and group of the job.
    pub(crate) job_id: u32,
    /// Longest time without an `Alive` frame.
    pub(crate) alive_limit: Duration,
    /// Where files land; the job owns it.
    pub(crate) work: String,
}

const DEFAULT_ALIVE_LIMIT: Duration = Duration::from_secs(10);

/// Reads the arguments after the program's name. `Err` says what is wrong.
pub(crate) fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Args, String> {
    let (mut guest_id, mut job_id) = (None::<u32>, None::<u32>);
    let (mut alive_limit, mut work) = (DEFAULT_ALIVE_LIMIT, "/work".to_owned());
    while let Some(name) = args.next() {
        let name = name.to_str().ok_or("an argument is not UTF-8")?.to_owned();
        let value = args.next().and_then(|value| value.into_string().ok());
        let value = value.ok_or_else(|| format!("{name} has no value"))?;
        let number = || {
            value
                .parse()
                .map_err(|_| format!("{name} has not a number for its value"))
        };
        match name.as_str() {
            "--guest-uid" => guest_id = Some(number()?),
            "--job-uid" => job_id = Some(number()?),
            "--alive-limit-ms" => alive_limit = Duration::from_millis(number()?.into()),
            "--work" if value.starts_with('/') => work = value,
            _ => return Err(format!("unknown argument or bad value: {name}")),
        }
    }
    let guest_id = guest_id.ok_or("--guest-uid is missing")?;
    let job_id = job_id.ok_or("--job-uid is missing")?;
    // The highest number means "no change" to the kernel, and 0 would be root.
    if [guest_id, job_id].iter().any(|id| matches!(*id, 0 | u32::MAX)) || guest_id == job_id {
        return Err("the two ids must differ and be real ids other than root's".to_owned());
    }
    if alive_limit.is_zero() {
        return Err("--alive-limit-ms must not be 0".to_owned());
    }
    Ok(Args {
        guest_id,
        job_id,
        alive_limit,
        work,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Args, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_two_ids_are_enough() {
        let args = parsed("--guest-uid 40000 --job-uid 40001").unwrap();
        assert_eq!((args.guest_id, args.job_id), (40_000, 40_001));
        assert_eq!(
            (args.alive_limit, args.work.as_str()),
            (DEFAULT_ALIVE_LIMIT, "/work")
        );
    }

    #[test]
    fn root_one_id_for_both_and_the_kernels_no_change_are_refused() {
        for line in [
            "--guest-uid 0 --job-uid 40001",
            "--guest-uid 40000 --job-uid 0",
            "--guest-uid 40000 --job-uid 40000",
            "--guest-uid 40000 --job-uid 4294967295",
            "--guest-uid 40000 --job-uid -1",
            "--guest-uid 40000",
            "--job-uid 40000",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn unknown_arguments_and_missing_values_are_refused() {
        for tail in ["--surprise 1", "--work", "--work relative", "--alive-limit-ms 0"] {
            let line = format!("--guest-uid 40000 --job-uid 40001 {tail}");
            assert!(parsed(&line).is_err(), "{line}");
        }
    }
}
