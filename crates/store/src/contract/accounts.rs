//! Tenants and keys.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use mayfly_core::{
    account::Role,
    digest::Digest,
    id::{KeyId, TenantId},
};

use super::{Place, bench::Bench};
use crate::{
    accounts::{
        KeyRecord, KeysOf, MAX_QUOTA, MAX_WEIGHT, NewKey, NewTenant, Quotas, Standing, TenantChange,
        TenantRecord, USUAL_WEIGHT,
    },
    error::StoreError,
    records::AuditFilter,
    seam::MAX_PAGE,
};

/// Makes a tenant of a name.
pub async fn tenant(bench: &Bench, name: &str) -> TenantRecord {
    let new = NewTenant {
        id: TenantId::new(),
        name: name.to_owned(),
        weight: USUAL_WEIGHT,
        quotas: Quotas::default(),
    };
    let made = bench.store.create_tenant(new, None, bench.date()).await;
    made.expect("the tenant is made")
}

/// A key on its way into the store.
#[must_use]
pub fn new_key(tenant: Option<TenantId>, role: Role) -> NewKey {
    let id = KeyId::new();
    NewKey {
        id,
        tenant,
        role,
        name: "ci".to_owned(),
        secret: Digest::of(id.to_string().as_bytes()),
        expires_at: None,
    }
}

async fn key(bench: &Bench, new: NewKey) -> KeyRecord {
    let made = bench.store.create_key(new, None, bench.date()).await;
    made.expect("the key is made")
}

async fn found(bench: &Bench, id: KeyId) -> Option<KeyRecord> {
    let found = bench.store.find_key(id, bench.date()).await;
    found.expect("finding works")
}

/// The kinds and facts of a tenant's events.
pub(super) async fn facts(bench: &Bench, tenant: TenantId) -> Vec<serde_json::Value> {
    let events = bench
        .store
        .list_audit(tenant, AuditFilter::default(), MAX_PAGE)
        .await;
    events
        .expect("listing works")
        .into_iter()
        .map(|event| {
            let body: serde_json::Value = serde_json::from_slice(&event.body).expect("a body is JSON");
            assert_eq!(body["fact"]["kind"], event.kind);
            body["fact"].clone()
        })
        .collect()
}

/// By its id and by its name.
pub async fn a_tenant_is_found_and_on_record(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let by = KeyId::new();
    let new = NewTenant {
        id: TenantId::new(),
        name: "team-a".to_owned(),
        weight: MAX_WEIGHT,
        quotas: Quotas {
            most_in_flight: Some(0),
            most_queued: Some(MAX_QUOTA),
        },
    };
    let made = bench
        .store
        .create_tenant(new.clone(), Some(by), bench.date())
        .await
        .expect("the tenant is made");
    let expected = TenantRecord {
        id: new.id,
        name: new.name,
        weight: new.weight,
        quotas: new.quotas,
        created_at: bench.date(),
    };
    assert_eq!(made, expected);
    let by_id = bench.store.find_tenant(new.id).await.expect("finding works");
    assert_eq!(by_id.as_ref(), Some(&expected));
    let by_name = bench.store.find_tenant_by_name("team-a").await;
    assert_eq!(by_name.expect("finding works"), Some(expected));
    for name in ["team", "TEAM-A", "team-b"] {
        let none = bench.store.find_tenant_by_name(name).await;
        assert_eq!(none.expect("finding works"), None, "{name}");
    }
    let none = bench.store.find_tenant(TenantId::new()).await;
    assert_eq!(none.expect("finding works"), None);
    let facts = facts(&bench, new.id).await;
    let fact = serde_json::json!({"kind": "tenant_created", "name": "team-a", "weight": MAX_WEIGHT, "by": by,
                                  "most_in_flight": 0, "most_queued": MAX_QUOTA});
    assert_eq!(facts, [fact]);
}

/// Weight and quotas, with an event where anything changes; the name stays.
pub async fn what_a_tenant_may_have_is_changed_on_record(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let (made, by) = (tenant(&bench, "team-a").await, KeyId::new());
    let change = async |id, change| {
        bench
            .store
            .change_tenant(id, change, Some(by), bench.date())
            .await
    };
    let all = |weight, most_in_flight, most_queued| TenantChange {
        weight: Some(weight),
        most_in_flight: Some(most_in_flight),
        most_queued: Some(most_queued),
    };
    let weight = TenantChange {
        weight: Some(1),
        ..TenantChange::default()
    };
    let bounds = TenantChange {
        most_in_flight: Some(None),
        most_queued: Some(Some(0)),
        ..TenantChange::default()
    };
    for (asked, (weight, most_in_flight, most_queued)) in [
        (all(3, Some(5), Some(7)), (3, Some(5), Some(7))),
        (all(3, Some(5), Some(7)), (3, Some(5), Some(7))),
        (TenantChange::default(), (3, Some(5), Some(7))),
        (weight, (1, Some(5), Some(7))),
        (bounds, (1, None, Some(0))),
    ] {
        let expected = TenantRecord {
            weight,
            quotas: Quotas {
                most_in_flight,
                most_queued,
            },
            ..made.clone()
        };
        assert_eq!(change(made.id, asked).await.expect("changing works"), expected);
        let found = bench.store.find_tenant(made.id).await;
        assert_eq!(found.expect("finding works"), Some(expected));
    }
    let changed = serde_json::json!([
        {"kind": "tenant_changed", "weight": 3, "most_in_flight": 5, "most_queued": 7, "by": by},
        {"kind": "tenant_changed", "weight": 1, "most_in_flight": 5, "most_queued": 7, "by": by},
        {"kind": "tenant_changed", "weight": 1, "most_queued": 0, "by": by},
    ]);
    let facts = facts(&bench, made.id).await;
    assert_eq!(serde_json::Value::from(facts[1..].to_vec()), changed);
    let nobody = TenantId::new();
    let unknown = change(nobody, all(1, None, None)).await;
    assert!(
        matches!(unknown, Err(StoreError::NoSuchTenant(id)) if id == nobody),
        "{unknown:?}"
    );
    for unfit in [
        all(0, None, None),
        all(MAX_WEIGHT + 1, None, None),
        all(1, Some(MAX_QUOTA + 1), None),
        all(1, None, Some(MAX_QUOTA + 1)),
    ] {
        let refused = change(made.id, unfit).await;
        assert!(matches!(refused, Err(StoreError::Refused { .. })), "{refused:?}");
    }
}

/// Each leaves alone what it does not name, also where the other one is committed in between.
pub async fn changes_of_a_tenant_that_come_at_once_are_both_made(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let made = tenant(&bench, "team-a").await;
    let other = bench.place.open().await;
    for round in 1..=20 {
        let weight = TenantChange {
            weight: Some(round + 1),
            ..TenantChange::default()
        };
        let bound = TenantChange {
            most_queued: Some(Some(round)),
            ..TenantChange::default()
        };
        let (one, two) = tokio::join!(
            bench.store.change_tenant(made.id, weight, None, bench.date()),
            other.change_tenant(made.id, bound, None, bench.date())
        );
        one.and(two).expect("changing works");
        let found = bench.store.find_tenant(made.id).await;
        let found = found.expect("finding works").expect("it is there");
        assert_eq!((found.weight, found.quotas.most_queued), (round + 1, Some(round)));
    }
}

/// Neither its name nor its id is given away twice, and nothing of the second is kept.
pub async fn a_tenants_name_is_taken_once(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let first = tenant(&bench, "team-a").await;
    let again = [
        (TenantId::new(), "team-a"),
        (first.id, "team-b"),
        (first.id, "team-a"),
    ];
    for (id, name) in again {
        let new = NewTenant {
            id,
            name: name.to_owned(),
            weight: 7,
            quotas: Quotas::default(),
        };
        let refused = bench.store.create_tenant(new, None, bench.date()).await;
        assert!(
            matches!(&refused, Err(StoreError::TenantExists(taken)) if taken == name),
            "{refused:?}"
        );
    }
    let all = bench.store.list_tenants(None, MAX_PAGE).await;
    assert_eq!(facts(&bench, first.id).await.len(), 1);
    assert_eq!(all.expect("listing works"), [first]);
}

/// Names are plain, and weights have bounds.
pub async fn what_no_tenant_may_be_is_refused(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    for (name, weight) in [("", 1), ("A", 1), ("a b", 1), ("a", 0), ("a", MAX_WEIGHT + 1)] {
        let new = NewTenant {
            id: TenantId::new(),
            name: name.to_owned(),
            weight,
            quotas: Quotas::default(),
        };
        let refused = bench.store.create_tenant(new, None, bench.date()).await;
        assert!(
            matches!(refused, Err(StoreError::Refused { .. })),
            "{name} {weight}"
        );
    }
    let all = bench.store.list_tenants(None, MAX_PAGE).await;
    assert_eq!(all.expect("listing works"), []);
}

/// The tenant whose id is all zeros among them.
pub async fn tenants_are_listed_page_by_page(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let mut expected = Vec::new();
    for number in 0..5 {
        let new = NewTenant {
            id: if number == 0 {
                TenantId::LOCAL
            } else {
                TenantId::new()
            },
            name: format!("team-{number}"),
            weight: 1,
            quotas: Quotas::default(),
        };
        let made = bench.store.create_tenant(new, None, bench.date()).await;
        expected.push(made.expect("the tenant is made"));
    }
    let mut listed = Vec::new();
    loop {
        let after = listed.last().map(|tenant: &TenantRecord| tenant.id);
        let page = bench.store.list_tenants(after, 2).await.expect("listing works");
        assert!(page.len() <= 2);
        if page.is_empty() {
            break;
        }
        listed.extend(page);
    }
    assert_eq!(listed, expected);
}

/// A tenant's, and one of the fleet's own.
pub async fn a_key_is_found_and_on_record(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let team = tenant(&bench, "team-a").await;
    let by = KeyId::new();
    let end = bench.date() + TimeDelta::days(30);
    let of_team = NewKey {
        expires_at: Some(end),
        ..new_key(Some(team.id), Role::Submitter)
    };
    let of_fleet = new_key(None, Role::Operator);
    for new in [&of_team, &of_fleet] {
        let made = bench
            .store
            .create_key(new.clone(), Some(by), bench.date())
            .await
            .expect("the key is made");
        let expected = KeyRecord {
            id: new.id,
            tenant: new.tenant,
            role: new.role,
            name: new.name.clone(),
            secret: new.secret,
            created_at: bench.date(),
            expires_at: new.expires_at,
            revoked_at: None,
            last_used_at: None,
            standing: Standing::Valid,
        };
        assert_eq!(made, expected);
        assert_eq!(found(&bench, new.id).await, Some(expected));
    }
    assert_eq!(found(&bench, KeyId::new()).await, None);
    let of_team_log = facts(&bench, team.id).await;
    let expected = serde_json::json!({"kind": "key_created", "key": of_team.id, "role": "submitter", "name": "ci",
        "expires_at": end.to_rfc3339_opts(chrono::SecondsFormat::Millis, true), "by": by});
    assert_eq!(of_team_log[1..], [expected]);
    let of_fleet_log = facts(&bench, TenantId::LOCAL).await;
    let expected = serde_json::json!({"kind": "key_created", "key": of_fleet.id, "role": "operator", "name": "ci", "by": by});
    assert_eq!(of_fleet_log, [expected]);
    for log in [of_team_log, of_fleet_log] {
        let text = serde_json::to_string(&log).expect("it is JSON");
        assert!(!text.contains(&of_team.secret.to_hex()) && !text.contains(&of_fleet.secret.to_hex()));
    }
}

/// An id that is taken, a tenant that is not there, a role that belongs to somebody else, a name that is none.
pub async fn a_key_that_must_not_be_is_not_made(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let team = tenant(&bench, "team-a").await;
    let first = key(&bench, new_key(Some(team.id), Role::Viewer)).await;
    let nobody = TenantId::new();
    let refused = bench
        .store
        .create_key(new_key(Some(nobody), Role::Viewer), None, bench.date())
        .await;
    assert!(matches!(refused, Err(StoreError::NoSuchTenant(id)) if id == nobody));
    let bad = [
        new_key(Some(team.id), Role::Operator),
        new_key(None, Role::Submitter),
        new_key(None, Role::Viewer),
        new_key(None, Role::Auditor),
        NewKey {
            name: "A key".to_owned(),
            ..new_key(None, Role::Admin)
        },
        NewKey {
            id: first.id,
            ..new_key(None, Role::Admin)
        },
    ];
    for new in bad {
        let shown = format!("{new:?}");
        let refused = bench.store.create_key(new, None, bench.date()).await;
        assert!(matches!(refused, Err(StoreError::Refused { .. })), "{shown}");
    }
    for either in [None, Some(team.id)] {
        key(&bench, new_key(either, Role::Admin)).await;
    }
    assert_eq!(found(&bench, first.id).await, Some(first));
    assert_eq!(facts(&bench, team.id).await.len(), 3);
}

/// A tenant's alone, or everybody's; those that open nothing too.
pub async fn keys_are_listed_page_by_page(place: Arc<dyn Place>) {
    let bench = Bench::new(place).await;
    let (one, two) = (tenant(&bench, "team-a").await, tenant(&bench, "team-b").await);
    let mut all = Vec::new();
    for owner in [Some(one.id), None, Some(two.id), Some(one.id), Some(one.id)] {
        let role = if owner.is_some() {
            Role::Viewer
        } else {
            Role::Operator
        };
        all.push(key(&bench, new_key(owner, role)).await);
    }
    all[3] = bench
        .store
        .revoke_key(all[3].id, None, bench.date())
        .await
        .expect("revoking works");
    let of_one: Vec<_> = all
        .iter()
        .filter(|key| key.tenant == Some(one.id))
        .cloned()
        .collect();
    for (of, expected) in [
        (KeysOf::All, all.clone()),
        (KeysOf::Tenant(one.id), of_one),
        (KeysOf::Tenant(TenantId::new()), Vec::new()),
    ] {
        let mut listed: Vec<KeyRecord> = Vec::new();
        loop {
            let after = listed.last().map(|key| key.id);
            let page = bench.store.list_keys(of, after, 2, bench.date()).await;
            let page = page.expect("listing works");
            assert!(page.len() <= 2);
            if page.is_empty() {
                break;
            }
            listed.extend(page);
        }
        assert_eq!(listed, expected);
    }
}

/// From the moment of its end on, which it does not outlive.
pub async fn a_key_opens_nothing_once_its_time_is_over(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let new = NewKey {
        expires_at: Some(bench.date() + TimeDelta::seconds(60)),
        ..new_key(None, Role::Operator)
    };
    let id = key(&bench, new).await.id;
    bench.pass(Duration::from_millis(59_999));
    assert_eq!(standing(&bench, id).await, Standing::Valid);
    bench.pass(Duration::from_millis(1));
    assert_eq!(standing(&bench, id).await, Standing::Expired);
    let revoked = bench.store.revoke_key(id, None, bench.date()).await;
    assert_eq!(revoked.expect("revoking works").standing, Standing::Revoked);
}

async fn standing(bench: &Bench, id: KeyId) -> Standing {
    found(bench, id).await.expect("it is there").standing
}

/// Seen by every handle as soon as the call returns, once on record however often it is asked for.
pub async fn a_key_is_revoked_at_once_and_for_good(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let other = bench.place.open().await;
    let team = tenant(&bench, "team-a").await;
    let id = key(&bench, new_key(Some(team.id), Role::Viewer)).await.id;
    assert_eq!(standing(&bench, id).await, Standing::Valid);
    let by = KeyId::new();
    let first_date: DateTime<Utc> = bench.date();
    let revoked = bench.store.revoke_key(id, Some(by), first_date).await;
    let revoked = revoked.expect("revoking works");
    assert_eq!(
        (revoked.standing, revoked.revoked_at),
        (Standing::Revoked, Some(first_date))
    );
    let seen = other.find_key(id, bench.date()).await.expect("finding works");
    assert_eq!(seen, Some(revoked.clone()));
    bench.pass(Duration::from_secs(60));
    let again = bench.store.revoke_key(id, None, bench.date()).await;
    assert_eq!(again.expect("revoking works"), revoked);
    let log = facts(&bench, team.id).await;
    assert_eq!(
        log[2..],
        [serde_json::json!({"kind": "key_revoked", "key": id, "by": by})]
    );
    let nobody = KeyId::new();
    let none = bench.store.revoke_key(nobody, None, bench.date()).await;
    assert!(matches!(none, Err(StoreError::NoSuchKey(id)) if id == nobody));
}

/// To within a minute, and nobody is woken by it.
pub async fn the_last_use_of_a_key_is_known(place: Arc<dyn Place>) {
    let mut bench = Bench::new(place).await;
    let id = key(&bench, new_key(None, Role::Admin)).await.id;
    let mut commits = bench.store.commits();
    commits.borrow_and_update();
    let first = bench.date();
    let mut expected = first;
    for (pass, noted) in [(0, true), (30, false), (29, false), (1, true), (61, true)] {
        bench.pass(Duration::from_secs(pass));
        if noted {
            expected = bench.date();
        }
        let used = bench.store.key_used(id, bench.date()).await;
        used.expect("it is noted");
        let last = found(&bench, id).await.expect("it is there").last_used_at;
        assert_eq!(last, Some(expected), "after {pass} s");
    }
    assert!(!commits.has_changed().expect("the store is there"));
}
