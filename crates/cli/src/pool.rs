//! From the settings of a pool to the pool: which kinds of sandbox it keeps, with which limits.

use std::collections::BTreeMap;

use mayfly_core::{
    id::{ExecutorId, SessionId},
    image::{ImageName, ImagePin},
    job::{Blob, JobSpec, Language, RetryPolicy, Source},
    limits::{Limits, LimitsAsked},
    policy::Policy,
    units::{ByteSize, CpuShare},
};
use mayfly_sandbox::{
    WarmCommand,
    engine::Engine,
    pool::{Classes, Kept, PoolConfig, WarmCommands},
    seam::SandboxRequest,
};
use mayfly_settings::PoolSettings;

use crate::failure::Failure;

/// What a pool is made by.
pub(crate) struct PoolParts<'a> {
    pub(crate) pool: &'a PoolSettings,
    pub(crate) policy: &'a Policy,
    pub(crate) engine: &'a Engine,
    /// Whose the sandboxes are.
    pub(crate) executor: ExecutorId,
    /// What the names in the pool's settings mean.
    pub(crate) pins: &'a BTreeMap<String, ImagePin>,
}

/// A pool as the settings want it, for the sandboxes of one executor.
pub(crate) fn config(parts: &PoolParts<'_>) -> Result<PoolConfig, Failure> {
    let PoolParts { pool, policy, .. } = parts;
    let limits = &policy.limits;
    let facts = parts.engine.facts();
    let (warm, kept) = images(parts)?;
    Ok(PoolConfig {
        size: pool.size,
        max: pool.max.min(pool.size),
        max_idle: pool.max_idle.as_duration(),
        starts_per_second: pool.start_rate,
        starts: pool.starts,
        classes: Classes::new(
            pool.classes.memory.iter().copied(),
            pool.classes.cpu.iter().copied(),
            pool.classes.pids.iter().copied(),
            &most(&limits.ceilings, facts.cpus, facts.memory_bytes),
        ),
        longest_wall: limits.ceilings.wall,
        longest_wait: mayfly_executor::LONGEST_IDLE,
        warm,
        kept,
    })
}

/// No class goes over what a policy allows, nor over what the host has, as far as its engine says so.
fn most(ceilings: &Limits, cpus: u32, memory_bytes: u64) -> Limits {
    let mut most = *ceilings;
    if cpus > 0 {
        most.cpu = most.cpu.min(CpuShare::millis(cpus.saturating_mul(1000)));
    }
    if memory_bytes > 0 {
        most.memory = most.memory.min(ByteSize::bytes(memory_bytes));
    }
    most
}

/// What the settings say of single images: what is started in their sandboxes, and how many of them are always kept, as
/// for a job that asks for nothing but the image.
fn images(parts: &PoolParts<'_>) -> Result<(WarmCommands, Vec<Kept>), Failure> {
    let PoolParts { pool, executor, .. } = parts;
    let python = |imports: &[String]| WarmCommand::python(imports.to_vec()).map_err(Failure::usage);
    let mut warm = WarmCommands::default();
    if pool.python {
        warm.usual.push(python(&[])?);
    }
    let mut usual = Vec::new();
    for (text, image) in &pool.images {
        let name = text.parse::<ImageName>().map_err(Failure::usage)?;
        let pin = parts.pins.get(text).cloned().ok_or_else(|| {
            Failure::usage(format!(
                "setting `pool.images.{text}`: `executor.images` names no such image"
            ))
        })?;
        if pool.python && !image.imports.is_empty() {
            warm.of_images.push((pin.config_digest, python(&image.imports)?));
        }
        let job = usual_job(name)
            .resolve(parts.policy, pin, &mayfly_sandbox::baseline_digest())
            .map_err(Failure::usage)?;
        usual.push((job, image.min));
    }
    let kept = usual.into_iter().map(|(job, min)| Kept {
        request: SandboxRequest {
            warm: warm.of(&job).cloned(),
            // Made before there is a session: the label names none that ever is.
            ..SandboxRequest::for_job(&job, *executor, SessionId::new(), mayfly_executor::LONGEST_IDLE)
        },
        min,
    });
    let kept = kept.collect();
    Ok((warm, kept))
}

/// A job that asks for nothing but its image.
fn usual_job(image: ImageName) -> JobSpec {
    JobSpec {
        image,
        source: Some(Source {
            language: Language::Python,
            text: Blob::from(b"pass".to_vec()),
        }),
        command: None,
        files: Vec::new(),
        archives: Vec::new(),
        uploads: Vec::new(),
        args: Vec::new(),
        stdin: None,
        env: BTreeMap::new(),
        secrets: BTreeMap::new(),
        secret_files: BTreeMap::new(),
        limits: LimitsAsked::default(),
        network: None,
        egress: Vec::new(),
        runtime: None,
        artifacts: Vec::new(),
        artifacts_after: Default::default(),
        labels: BTreeMap::new(),
        retry: RetryPolicy::default(),
        expires_after: None,
        not_before: None,
        retain_source: true,
        priority: 0,
    }
}

#[cfg(test)]
mod tests {
    use mayfly_core::limits::LimitRules;

    use super::*;

    #[test]
    fn no_class_is_over_the_policy_nor_over_the_host() {
        let ceilings = LimitRules::default().ceilings;
        assert_eq!(most(&ceilings, 0, 0), ceilings, "an engine that says nothing");
        let host = most(&ceilings, 2, 4 << 30);
        assert_eq!(
            (host.cpu, host.memory),
            (CpuShare::millis(2000), ByteSize::mib(4096))
        );
        let large = most(&ceilings, 64, 1 << 40);
        assert_eq!((large.cpu, large.memory), (ceilings.cpu, ceilings.memory));
    }
}
