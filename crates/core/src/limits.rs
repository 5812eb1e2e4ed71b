//! The numbers that bind one run: what a job may ask for, and how that becomes what is in force.

use serde::{Deserialize, Serialize};

use crate::{
    fault::{Fault, Faults},
    units::{ByteSize, CpuShare, Span},
};

/// Memory that the temporary file systems together must leave to the program.
pub const MEMORY_BESIDE_TMPFS: ByteSize = ByteSize::mib(16);

/// Every number that bounds a run. All are hard: nothing is a hint, nothing is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Memory and swap together, file systems in memory included.
    pub memory: ByteSize,
    /// CPU time per time.
    pub cpu: CpuShare,
    /// Processes and threads at once.
    pub pids: u32,
    /// From the start of the program to its end, by the wall clock.
    pub wall: Span,
    /// `/work`, where the program's files are and where it may write.
    pub work: ByteSize,
    /// `/tmp`.
    pub tmp: ByteSize,
    /// `/dev/shm`.
    pub shm: ByteSize,
    /// What is kept of stdout; the rest is counted and hashed.
    pub stdout: ByteSize,
    /// What is kept of stderr; the rest is counted and hashed.
    pub stderr: ByteSize,
    /// Open file descriptors of each process.
    pub open_files: u32,
}

/// What a job asks for; what it leaves out is the policy's default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct LimitsAsked {
    /// See [`Limits::memory`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// See [`Limits::cpu`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuShare>,
    /// See [`Limits::pids`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// See [`Limits::wall`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall: Option<Span>,
    /// See [`Limits::work`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<ByteSize>,
    /// See [`Limits::tmp`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tmp: Option<ByteSize>,
    /// See [`Limits::shm`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shm: Option<ByteSize>,
    /// See [`Limits::stdout`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<ByteSize>,
    /// See [`Limits::stderr`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<ByteSize>,
    /// See [`Limits::open_files`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u32>,
}

impl LimitsAsked {
    /// These, and those of `others` where these ask for nothing.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            memory: self.memory.or(others.memory),
            cpu: self.cpu.or(others.cpu),
            pids: self.pids.or(others.pids),
            wall: self.wall.or(others.wall),
            work: self.work.or(others.work),
            tmp: self.tmp.or(others.tmp),
            shm: self.shm.or(others.shm),
            stdout: self.stdout.or(others.stdout),
            stderr: self.stderr.or(others.stderr),
            open_files: self.open_files.or(others.open_files),
        }
    }
}

/// The least, the usual and the most of each limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitRules {
    /// Below these a run can't work: asking for less is a fault.
    pub floors: Limits,
    /// In force where a job asks for nothing.
    pub defaults: Limits,
    /// Asking for more is a fault.
    pub ceilings: Limits,
}

impl Default for LimitRules {
    fn default() -> Self {
        Self {
            floors: Limits {
                memory: ByteSize::mib(32),
                cpu: CpuShare::millis(10),
                pids: 4,
                wall: Span::millis(100),
                work: ByteSize::mib(1),
                tmp: ByteSize::mib(1),
                shm: ByteSize::kib(64),
                stdout: ByteSize::kib(1),
                stderr: ByteSize::kib(1),
                open_files: 16,
            },
            defaults: Limits {
                memory: ByteSize::mib(256),
                cpu: CpuShare::millis(1000),
                pids: 128,
                wall: Span::seconds(30),
                work: ByteSize::mib(64),
                tmp: ByteSize::mib(16),
                shm: ByteSize::mib(16),
                stdout: ByteSize::mib(1),
                stderr: ByteSize::mib(1),
                open_files: 1024,
            },
            ceilings: Limits {
                memory: ByteSize::mib(8192),
                cpu: CpuShare::millis(8000),
                pids: 4096,
                wall: Span::seconds(3600),
                work: ByteSize::mib(4096),
                tmp: ByteSize::mib(1024),
                shm: ByteSize::mib(1024),
                stdout: ByteSize::mib(16),
                stderr: ByteSize::mib(16),
                open_files: 65_536,
            },
        }
    }
}

impl LimitRules {
    /// What is in force for a job that asks for this.
    ///
    /// The temporary file systems are memory: together they may take the memory limit less
    /// [`MEMORY_BESIDE_TMPFS`]. Sizes that the job did not ask for shrink to fit, so that a small memory limit
    /// alone is never refused; sizes that it did ask for are never changed in silence.
    ///
    /// # Errors
    /// Every limit that is under its floor or over its ceiling, and file systems that don't fit in the memory.
    pub fn resolve(&self, asked: &LimitsAsked) -> Result<Limits, Faults> {
        let mut faults = Faults::default();
        let mut limits = Limits {
            memory: self.pick(&mut faults, "memory", asked.memory, |limits| limits.memory),
            cpu: self.pick(&mut faults, "cpu", asked.cpu, |limits| limits.cpu),
            pids: self.pick(&mut faults, "pids", asked.pids, |limits| limits.pids),
            wall: self.pick(&mut faults, "wall", asked.wall, |limits| limits.wall),
            work: self.pick(&mut faults, "work", asked.work, |limits| limits.work),
            tmp: self.pick(&mut faults, "tmp", asked.tmp, |limits| limits.tmp),
            shm: self.pick(&mut faults, "shm", asked.shm, |limits| limits.shm),
            stdout: self.pick(&mut faults, "stdout", asked.stdout, |limits| limits.stdout),
            stderr: self.pick(&mut faults, "stderr", asked.stderr, |limits| limits.stderr),
            open_files: self.pick(&mut faults, "open_files", asked.open_files, |limits| {
                limits.open_files
            }),
        };
        if faults.is_empty() {
            self.fit_file_systems(asked, &mut limits, &mut faults);
        }
        faults.into_result(limits)
    }

    /// Whether the rules make sense: each floor at most its default, each default at most its ceiling.
    ///
    /// # Errors
    /// Every limit of which that is not so.
    pub fn check(&self) -> Result<(), Faults> {
        let mut faults = Faults::default();
        let mut compare = |name: &str, ordered: bool| {
            if !ordered {
                let message = "the floor must be at most the default, and the default at most the ceiling";
                faults.push(Fault::new(format!("limits.{name}"), "out_of_order", message));
            }
        };
        let (least, usual, most) = (&self.floors, &self.defaults, &self.ceilings);
        compare(
            "memory",
            least.memory <= usual.memory && usual.memory <= most.memory,
        );
        compare("cpu", least.cpu <= usual.cpu && usual.cpu <= most.cpu);
        compare("pids", least.pids <= usual.pids && usual.pids <= most.pids);
        compare("wall", least.wall <= usual.wall && usual.wall <= most.wall);
        compare("work", least.work <= usual.work && usual.work <= most.work);
        compare("tmp", least.tmp <= usual.tmp && usual.tmp <= most.tmp);
        compare("shm", least.shm <= usual.shm && usual.shm <= most.shm);
        compare(
            "stdout",
            least.stdout <= usual.stdout && usual.stdout <= most.stdout,
        );
        compare(
            "stderr",
            least.stderr <= usual.stderr && usual.stderr <= most.stderr,
        );
        compare(
            "open_files",
            least.open_files <= usual.open_files && usual.open_files <= most.open_files,
        );
        faults.into_result(())
    }

    fn pick<T: Copy + Ord + std::fmt::Display>(
        &self,
        faults: &mut Faults,
        name: &'static str,
        asked: Option<T>,
        field: impl Fn(&Limits) -> T,
    ) -> T {
        let Some(asked) = asked else {
            return field(&self.defaults);
        };
        let (floor, ceiling) = (field(&self.floors), field(&self.ceilings));
        if asked < floor {
            faults.push(Fault::new(
                format!("limits.{name}"),
                "too_small",
                format!("{asked} is under the least, {floor}"),
            ));
        } else if asked > ceiling {
            faults.push(Fault::new(
                format!("limits.{name}"),
                "too_large",
                format!("{asked} is over the policy's ceiling, {ceiling}"),
            ));
        }
        asked
    }

    /// Shrinks the sizes that nobody asked for, in proportion, until all fit beside the program.
    fn fit_file_systems(&self, asked: &LimitsAsked, limits: &mut Limits, faults: &mut Faults) {
        let room = limits
            .memory
            .as_bytes()
            .saturating_sub(MEMORY_BESIDE_TMPFS.as_bytes());
        let sizes = [
            (&mut limits.work, asked.work, self.floors.work),
            (&mut limits.tmp, asked.tmp, self.floors.tmp),
            (&mut limits.shm, asked.shm, self.floors.shm),
        ];
        let fixed: u64 = sizes
            .iter()
            .filter_map(|(_, asked, _)| *asked)
            .map(ByteSize::as_bytes)
            .sum();
        let wanted: u64 = sizes
            .iter()
            .filter(|(_, asked, _)| asked.is_none())
            .map(|(size, ..)| size.as_bytes())
            .sum();
        let least: u64 = sizes
            .iter()
            .filter(|(_, asked, _)| asked.is_none())
            .map(|(.., floor)| floor.as_bytes())
            .sum();
        if fixed.saturating_add(least) > room {
            faults.push(Fault::new(
                "limits.work",
                "file_systems_exceed_memory",
                format!(
                    "/work, /tmp and /dev/shm are memory: together at most {} with a memory limit of {}; ask for less \
                     of them or for more memory",
                    ByteSize::bytes(room),
                    limits.memory
                ),
            ));
            return;
        }
        let free = room - fixed;
        if wanted <= free {
            return;
        }
        for (size, asked, floor) in sizes {
            if asked.is_none() {
                let share = u128::from(size.as_bytes()) * u128::from(free - least) / u128::from(wanted);
                let extra = u64::try_from(share).expect("a share of a u64 is a u64");
                // Whole pages: the kernel rounds a tmpfs up to them, and the read-back compares exactly.
                *size = ByteSize::bytes((floor.as_bytes() + extra) / PAGE * PAGE);
            }
        }
    }
}

/// The page size that tmpfs sizes are rounded to.
const PAGE: u64 = 4096;

impl Limits {
    /// Files and directories that a temporary file system of this size may hold: one for each page of it. Without a
    /// bound of their own, empty files would fill the host's memory (each costs the kernel about 1 KiB).
    #[must_use]
    pub const fn inodes_of(size: ByteSize) -> u64 {
        let inodes = size.as_bytes() / PAGE;
        if inodes < 64 { 64 } else { inodes }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resolve(asked: LimitsAsked) -> Result<Limits, Faults> {
        LimitRules::default().resolve(&asked)
    }

    #[test]
    fn a_job_that_asks_for_nothing_gets_the_defaults() {
        assert_eq!(
            resolve(LimitsAsked::default()),
            Ok(LimitRules::default().defaults)
        );
    }

    #[test]
    fn the_documented_table_is_what_is_in_force() {
        let text = include_str!("../../../docs/limits.md");
        let rows: std::collections::BTreeMap<&str, Vec<&str>> = text
            .lines()
            .filter_map(|line| line.strip_prefix("| `"))
            .filter_map(|line| line.split_once('`'))
            .map(|(name, rest)| (name, rest.split('|').map(str::trim).collect()))
            .collect();
        let rules = LimitRules::default();
        let values = |limits: &Limits| serde_json::to_value(limits).unwrap();
        let shown =
            |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let defaults = values(&rules.defaults);
        let all = defaults.as_object().unwrap();
        assert_eq!(
            rows.keys().copied().collect::<Vec<_>>(),
            all.keys().map(String::as_str).collect::<Vec<_>>()
        );
        for (name, default) in all {
            let found: Vec<String> = rows[name.as_str()][2..5]
                .iter()
                .map(|cell| (*cell).to_owned())
                .collect();
            let (floors, ceilings) = (values(&rules.floors), values(&rules.ceilings));
            assert_eq!(
                found,
                [default, &floors[name], &ceilings[name]].map(shown),
                "{name}"
            );
        }
    }

    #[test]
    fn every_fault_is_listed_at_once() {
        let faults = resolve(LimitsAsked {
            memory: Some(ByteSize::bytes(1)),
            pids: Some(100_000),
            wall: Some(Span::seconds(0)),
            ..LimitsAsked::default()
        })
        .unwrap_err();
        let paths: Vec<_> = faults
            .iter()
            .map(|fault| (fault.path.as_str(), fault.code))
            .collect();
        assert_eq!(
            paths,
            [
                ("limits.memory", "too_small"),
                ("limits.pids", "too_large"),
                ("limits.wall", "too_small")
            ]
        );
    }

    #[test]
    fn each_floor_and_each_ceiling_is_a_limit() {
        let rules = LimitRules::default();
        macro_rules! edges {
            ($($field:ident: $down:expr, $up:expr;)*) => {$(
                let with = |value| rules.resolve(&LimitsAsked { $field: Some(value), memory: Some(ByteSize::mib(8192)), ..LimitsAsked::default() });
                assert!(with(rules.floors.$field).is_ok(), "{} at its floor", stringify!($field));
                assert!(with(rules.ceilings.$field).is_ok(), "{} at its ceiling", stringify!($field));
                assert!(with($down(rules.floors.$field)).is_err(), "{} under its floor", stringify!($field));
                assert!(with($up(rules.ceilings.$field)).is_err(), "{} over its ceiling", stringify!($field));
            )*};
        }
        let (less, more) = (
            |size: ByteSize| ByteSize::bytes(size.as_bytes() - 1),
            |size: ByteSize| ByteSize::bytes(size.as_bytes() + 1),
        );
        edges! {
            cpu: |cpu: CpuShare| CpuShare::millis(cpu.as_millis() - 1), |cpu: CpuShare| CpuShare::millis(cpu.as_millis() + 1);
            pids: |pids| pids - 1, |pids| pids + 1;
            wall: |wall: Span| Span::millis(wall.as_millis() - 1), |wall: Span| Span::millis(wall.as_millis() + 1);
            work: less, more; tmp: less, more; shm: less, more; stdout: less, more; stderr: less, more;
            open_files: |files| files - 1, |files| files + 1;
        }
    }

    #[test]
    fn file_systems_that_were_asked_for_are_refused_rather_than_shrunk() {
        let faults = resolve(LimitsAsked {
            memory: Some(ByteSize::mib(64)),
            work: Some(ByteSize::mib(64)),
            ..LimitsAsked::default()
        })
        .unwrap_err();
        assert_eq!(faults.iter().next().unwrap().code, "file_systems_exceed_memory");
    }

    proptest! {
        #[test]
        fn a_memory_limit_alone_is_never_refused_and_its_file_systems_fit(mib in 32u64..=8192) {
            let limits = resolve(LimitsAsked { memory: Some(ByteSize::mib(mib)), ..LimitsAsked::default() }).unwrap();
            let total = limits.work.as_bytes() + limits.tmp.as_bytes() + limits.shm.as_bytes();
            prop_assert!(total + MEMORY_BESIDE_TMPFS.as_bytes() <= limits.memory.as_bytes());
            let floors = LimitRules::default().floors;
            prop_assert!(limits.work >= floors.work && limits.tmp >= floors.tmp && limits.shm >= floors.shm);
            for size in [limits.work, limits.tmp, limits.shm] {
                prop_assert!(size.as_bytes().is_multiple_of(PAGE));
            }
        }

        #[test]
        fn what_was_asked_for_is_in_force_or_refused(work in 1u64..200, memory in 32u64..400) {
            let asked = LimitsAsked {
                memory: Some(ByteSize::mib(memory)), work: Some(ByteSize::mib(work)), ..LimitsAsked::default()
            };
            if let Ok(limits) = resolve(asked) {
                prop_assert_eq!((limits.memory, limits.work), (ByteSize::mib(memory), ByteSize::mib(work)));
            }
        }
    }
}
