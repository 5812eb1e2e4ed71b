//! What is kept under a name is there for its tenant and for the attempts of its jobs, and each use of it is on record.

use std::{sync::Arc, time::Duration};

use mayfly_core::{
    id::{AttemptId, JobId, KeyId, SecretId, TenantId},
    job::SecretName,
};
use serde_json::json;

use super::{
    Place,
    accounts::facts,
    bench::{Bench, Plan, success},
    jobs::tenant,
};
use crate::{
    blobs::BlobOwner,
    error::StoreError,
    secrets::{MAX_SEALED_BYTES, MAX_SECRETS, NewSecret, SealedSecret, SecretRecord},
};

fn named(name: &str) -> SecretName {
    name.parse().expect("it is a name")
}

async fn try_set(
    bench: &Bench,
    tenant: TenantId,
    name: &str,
    sealed: &[u8],
) -> Result<SecretRecord, StoreError> {
    let secret = NewSecret {
        tenant,
        name: named(name),
        value: SecretId::new(),
        sealed: sealed.to_vec(),
    };
    bench.store.set_secret(secret, None, bench.date()).await
}

async fn set(bench: &Bench, tenant: TenantId, name: &str, sealed: &[u8]) -> SecretRecord {
    try_set(bench, tenant, name, sealed).await.expect("setting works")
}

async fn list(bench: &Bench, tenant: TenantId) -> Vec<SecretRecord> {
    bench.store.list_secrets(tenant).await.expect("listing works")
}

async fn give(bench: &Bench, owner: BlobOwner, names: &[&str]) -> Option<Vec<(String, SecretId, Vec<u8>)>> {
    let names: Vec<_> = names.iter().map(|name| named(name)).collect();
    let given = bench.store.give_secrets(owner, &names, bench.date()).await;
    let told = |secret: SealedSecret| (secret.name.to_string(), secret.value, secret.sealed);
    given
        .expect("giving works")
        .map(|all| all.into_iter().map(told).collect())
}

/// By name, with an id of each value; a second one replaces the first; removed, it is gone.
pub async fn what_is_kept_under_a_name_is_its_tenants_own(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let (one, other) = (tenant(1), tenant(2));
    let old = set(&bench, one, "KEY", b"\0old").await;
    bench.pass(Duration::from_secs(60));
    let by = KeyId::new();
    let secret = NewSecret {
        tenant: one,
        name: named("KEY"),
        value: SecretId::new(),
        sealed: b"new".to_vec(),
    };
    let new = bench.store.set_secret(secret, Some(by), bench.date()).await;
    let new = new.expect("setting works");
    assert_ne!(old.value, new.value);
    assert_eq!(new.set_at, bench.date());
    let plain = set(&bench, one, "a.plain-one", b"x").await;
    let theirs = set(&bench, other, "KEY", b"theirs").await;
    assert_eq!(list(&bench, one).await, [new.clone(), plain.clone()]);
    assert_eq!(list(&bench, other).await, [theirs]);
    assert_eq!(list(&bench, tenant(3)).await, []);
    let second = bench.place.open().await;
    assert_eq!(
        second.list_secrets(one).await.expect("listing works"),
        [new.clone(), plain.clone()]
    );
    let remove = async |tenant, name: &str| {
        let (name, now) = (named(name), bench.date());
        let removed = bench.store.remove_secret(tenant, &name, Some(by), now).await;
        removed.expect("removing works")
    };
    assert!(!remove(other, "a.plain-one").await, "it is another's");
    assert!(remove(one, "KEY").await);
    assert!(!remove(one, "KEY").await, "it is gone");
    assert_eq!(list(&bench, one).await, std::slice::from_ref(&plain));
    assert_eq!(
        facts(&bench, one).await,
        [
            json!({"kind": "secret_set", "name": "KEY", "value": old.value}),
            json!({"kind": "secret_set", "name": "KEY", "value": new.value, "by": by}),
            json!({"kind": "secret_set", "name": "a.plain-one", "value": plain.value}),
            json!({"kind": "secret_removed", "name": "KEY", "value": new.value, "by": by}),
        ]
    );
}

/// All that are asked for or none; to nobody else's attempt, and to none that is over.
pub async fn a_secret_is_given_to_an_attempt_that_is_not_over_and_that_is_on_record(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut client = bench.session().await;
    let message = bench.started(&Plan::once(), &mut client).await;
    let owner = BlobOwner {
        tenant: message.tenant,
        job: message.job,
        attempt: message.attempt,
    };
    let b = set(&bench, owner.tenant, "B", b"\0b").await.value;
    let a = set(&bench, owner.tenant, "A", b"a").await.value;
    set(&bench, tenant(9), "THEIRS", b"theirs").await;
    let both = Some(vec![
        ("A".to_owned(), a, b"a".to_vec()),
        ("B".to_owned(), b, b"\0b".to_vec()),
    ]);
    assert_eq!(give(&bench, owner, &["B", "A", "B"]).await, both);
    assert_eq!(
        give(&bench, owner, &["A", "THEIRS"]).await,
        None,
        "another tenant's"
    );
    assert_eq!(give(&bench, owner, &["A", "C"]).await, None, "one is not there");
    for wrong in [
        BlobOwner {
            tenant: tenant(9),
            ..owner
        },
        BlobOwner {
            job: JobId::new(),
            ..owner
        },
        BlobOwner {
            attempt: AttemptId::new(),
            ..owner
        },
    ] {
        assert_eq!(give(&bench, wrong, &[]).await, None, "{wrong:?}");
        assert_eq!(give(&bench, wrong, &["THEIRS"]).await, None, "{wrong:?}");
    }
    bench.send(&client.finish(message.attempt, success())).await;
    assert_eq!(give(&bench, owner, &["A"]).await, None, "it is over");
    let log = facts(&bench, owner.tenant).await;
    let given: Vec<_> = log
        .iter()
        .filter(|fact| fact["kind"] == "secrets_given")
        .collect();
    assert_eq!(
        given,
        [&json!({"kind": "secrets_given", "secrets": {"A": a, "B": b}})]
    );
    assert!(
        facts(&bench, tenant(9))
            .await
            .iter()
            .all(|fact| fact["kind"] == "secret_set")
    );
}

/// In number and in length; another value under a name that is there is no further one.
pub async fn a_tenant_has_no_more_secrets_than_there_may_be(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let one = tenant(1);
    for number in 0..MAX_SECRETS {
        set(&bench, one, &format!("s{number}"), b"x").await;
    }
    let more = try_set(&bench, one, "more", b"x").await;
    assert!(matches!(more, Err(StoreError::Refused { .. })));
    set(&bench, one, "s7", b"y").await;
    set(&bench, tenant(2), "more", &[0; MAX_SEALED_BYTES]).await;
    let longer = try_set(&bench, tenant(2), "longer", &[0; MAX_SEALED_BYTES + 1]).await;
    assert!(matches!(longer, Err(StoreError::Refused { .. })));
    assert_eq!(list(&bench, one).await.len(), MAX_SECRETS as usize);
}
