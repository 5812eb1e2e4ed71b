//! Classes of limits: the steps to which a pool rounds up, so that few kinds of sandbox serve all jobs.

use mayfly_core::{
    limits::Limits,
    units::{ByteSize, CpuShare},
};

/// The steps of the limits that are rounded up. What is over the last step stays as it is; so does all where there is
/// none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classes {
    memory: Vec<ByteSize>,
    cpu: Vec<CpuShare>,
    pids: Vec<u32>,
}

impl Classes {
    /// Steps of which none is over what may be in force: a policy's ceilings, and what the host has.
    #[must_use]
    pub fn new(
        memory: impl IntoIterator<Item = ByteSize>,
        cpu: impl IntoIterator<Item = CpuShare>,
        pids: impl IntoIterator<Item = u32>,
        most: &Limits,
    ) -> Self {
        Self {
            memory: steps(memory, most.memory),
            cpu: steps(cpu, most.cpu),
            pids: steps(pids, most.pids),
        }
    }

    /// Rounds limits up. Sizes of file systems stay, and fit all the better.
    pub fn round_up(&self, limits: &mut Limits) {
        limits.memory = up(&self.memory, limits.memory);
        limits.cpu = up(&self.cpu, limits.cpu);
        limits.pids = up(&self.pids, limits.pids);
    }
}

fn steps<T: Ord + Copy>(steps: impl IntoIterator<Item = T>, most: T) -> Vec<T> {
    let mut steps: Vec<T> = steps.into_iter().filter(|step| *step <= most).collect();
    steps.sort_unstable();
    steps
}

fn up<T: Ord + Copy>(steps: &[T], asked: T) -> T {
    let step = steps.iter().find(|step| **step >= asked);
    step.copied().unwrap_or(asked)
}

#[cfg(test)]
mod tests {
    use mayfly_core::limits::{LimitRules, MEMORY_BESIDE_TMPFS};
    use proptest::prelude::*;

    use super::*;

    fn classes(most: &Limits) -> Classes {
        let memory = [512, 64, 256, 128].map(ByteSize::mib);
        Classes::new(memory, [500, 1000, 2000].map(CpuShare::millis), [32, 128], most)
    }

    fn rounded(change: impl FnOnce(&mut Limits)) -> (ByteSize, CpuShare, u32) {
        let rules = LimitRules::default();
        let mut limits = rules.defaults;
        change(&mut limits);
        classes(&rules.ceilings).round_up(&mut limits);
        (limits.memory, limits.cpu, limits.pids)
    }

    #[test]
    fn each_limit_goes_up_to_the_next_step_and_a_step_is_its_own() {
        let low = rounded(|limits| {
            limits.memory = ByteSize::mib(129);
            limits.cpu = CpuShare::millis(10);
            limits.pids = 32;
        });
        assert_eq!(low, (ByteSize::mib(256), CpuShare::millis(500), 32));
    }

    #[test]
    fn what_is_over_the_last_step_stays_exact() {
        let high = rounded(|limits| {
            limits.memory = ByteSize::mib(513);
            limits.cpu = CpuShare::millis(2001);
            limits.pids = 129;
        });
        assert_eq!(high, (ByteSize::mib(513), CpuShare::millis(2001), 129));
    }

    #[test]
    fn no_step_goes_over_what_may_be_in_force() {
        let mut most = LimitRules::default().ceilings;
        (most.memory, most.cpu, most.pids) = (ByteSize::mib(300), CpuShare::millis(1500), 100);
        let mut limits = most;
        classes(&most).round_up(&mut limits);
        assert_eq!(limits, most);
    }

    proptest! {
        #[test]
        fn nothing_is_ever_less_than_asked_and_file_systems_still_fit(mib in 32u64..600, millis in 10u32..3000, pids in 4u32..200) {
            let rules = LimitRules::default();
            let asked = mayfly_core::limits::LimitsAsked {
                memory: Some(ByteSize::mib(mib)), cpu: Some(CpuShare::millis(millis)), pids: Some(pids),
                ..Default::default()
            };
            let exact = rules.resolve(&asked).unwrap();
            let mut limits = exact;
            classes(&rules.ceilings).round_up(&mut limits);
            prop_assert!(limits.memory >= exact.memory && limits.cpu >= exact.cpu && limits.pids >= exact.pids);
            let files = limits.work.as_bytes() + limits.tmp.as_bytes() + limits.shm.as_bytes();
            prop_assert!(files + MEMORY_BESIDE_TMPFS.as_bytes() <= limits.memory.as_bytes());
            let others = Limits { memory: exact.memory, cpu: exact.cpu, pids: exact.pids, ..limits };
            prop_assert_eq!(others, exact);
        }
    }
}
