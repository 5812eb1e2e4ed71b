use mayfly_core::id::{AttemptId, JobId, TenantId};
use uuid::Uuid;

use super::*;
use crate::token::TokenKey;

fn key(byte: u8) -> BlobKey {
    TokenKey::from_bytes([byte; 32]).blob_key()
}

fn claim() -> BlobClaim {
    BlobClaim {
        tenant: TenantId::from_uuid(Uuid::from_u128(1)),
        job: JobId::from_uuid(Uuid::from_u128(2)),
        attempt: AttemptId::from_uuid(Uuid::from_u128(3)),
        kind: BlobKind::Input,
        bytes: 70_000,
        expires: 1_800_000_000,
    }
}

fn signature(url: &BlobUrl) -> BlobSignature {
    let (_, digits) = url.reveal().rsplit_once("signature=").unwrap();
    serde_json::from_str(&format!("\"{digits}\"")).unwrap()
}

#[test]
fn a_signature_is_good_for_all_that_was_signed_and_for_nothing_else() {
    let claim = claim();
    let good = signature(&key(1).url("https://fleet.example", &claim));
    assert!(key(1).verify("GET", &claim, &good));
    assert!(!key(2).verify("GET", &claim, &good), "another key");
    assert!(!key(1).verify("PUT", &claim, &good), "another method");
    let changed = [
        BlobClaim {
            tenant: TenantId::LOCAL,
            ..claim
        },
        BlobClaim {
            job: JobId::from_uuid(Uuid::from_u128(9)),
            ..claim
        },
        BlobClaim {
            attempt: AttemptId::from_uuid(Uuid::from_u128(9)),
            ..claim
        },
        BlobClaim {
            kind: BlobKind::Output,
            ..claim
        },
        BlobClaim {
            bytes: claim.bytes + 1,
            ..claim
        },
        BlobClaim {
            expires: claim.expires + 1,
            ..claim
        },
    ];
    for changed in changed {
        assert!(!key(1).verify("GET", &changed, &good), "{changed:?}");
    }
    for bit in 0..256_usize {
        let mut wrong = good;
        wrong.0[bit / 8] ^= 1 << (bit % 8);
        assert!(!key(1).verify("GET", &claim, &wrong), "bit {bit}");
    }
}

#[test]
fn an_address_ends_a_day_after_the_longest_run_and_not_later() {
    let now = ServerTime::from_micros(1_000_000_000_000);
    let claim = BlobClaim {
        expires: BlobClaim::expiry(now, Duration::from_secs(60)),
        ..claim()
    };
    let end = Duration::from_secs(60 + 24 * 3600);
    assert!(!claim.has_expired(now.after(end - Duration::from_secs(1))));
    assert!(claim.has_expired(now.after(end)));
}

#[test]
fn neither_key_nor_signature_shows_in_debug_output_or_in_an_error() {
    let url = key(0xab).url("https://fleet.example", &claim());
    let (_, digits) = url.reveal().rsplit_once("signature=").unwrap();
    let shown = format!("{url} {url:?} {:?} {:?}", key(0xab), signature(&url));
    assert!(!shown.contains(&digits[..8]) && !shown.contains("171"), "{shown}");
    assert!(!shown.contains("expires"), "{shown}");
    assert!(shown.contains("/input"), "{shown}");
    let error = serde_json::from_str::<BlobSignature>(&format!("\"0{digits}\"")).unwrap_err();
    assert!(!error.to_string().contains(&digits[..8]), "{error}");
}

#[test]
fn an_address_reads_back_from_the_wire_and_what_is_none_is_refused() {
    let url = key(1).url("https://fleet.example", &claim());
    let text = serde_json::to_string(&url).unwrap();
    assert_eq!(serde_json::from_str::<BlobUrl>(&text).unwrap(), url);
    let long = format!("\"http://{}\"", "x".repeat(MAX_URL_BYTES));
    for wrong in ["\"\"", "\"file:///etc/passwd\"", "\"ftp://a\"", "7", &long] {
        assert!(serde_json::from_str::<BlobUrl>(wrong).is_err(), "{wrong}");
    }
}
