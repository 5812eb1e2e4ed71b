//! Content beside the messages: where an executor fetches what a job brings, and leaves what a run wrote, where that is
//! too long for a message. What may be done at such a place is in its address, under the server's signature; nothing else
//! is asked of whoever knows it, so that an address is as secret as what it leads to.

use std::{fmt, time::Duration};

use hmac::{Hmac, KeyInit, Mac};
use mayfly_core::id::{AttemptId, JobId, TenantId};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::time::ServerTime;

/// How long an address is good beyond the longest run of its job, at most: the time that an order may wait in the broker.
/// Whatever it says, it leads nowhere once its attempt is over.
pub const GRACE: Duration = Duration::from_secs(24 * 3600);

/// Longest address, in bytes.
pub const MAX_URL_BYTES: usize = 2048;

/// What an address leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlobKind {
    /// What the job brings: fetched.
    Input,
    /// What its run wrote: left there.
    Output,
    /// Files that its run has made: left there, piece by piece.
    Artifact,
    /// The values of its secrets: fetched.
    Secrets,
    /// Files that it names and does not bring: fetched, piece by piece.
    Fetched,
}

impl BlobKind {
    /// The word for it in addresses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
            Self::Artifact => "artifact",
            Self::Secrets => "secrets",
            Self::Fetched => "file",
        }
    }

    /// The one method of HTTP that an address of this kind is for.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Input | Self::Secrets | Self::Fetched => "GET",
            Self::Output | Self::Artifact => "PUT",
        }
    }
}

/// What an address allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobClaim {
    /// Whose job.
    pub tenant: TenantId,
    /// The job.
    pub job: JobId,
    /// The attempt, which must not be over.
    pub attempt: AttemptId,
    /// What is there.
    pub kind: BlobKind,
    /// Of an input its length, of files that are fetched the length of all together, of an output the most that is taken, of
    /// files that are left the most that is taken of all together, of secrets the most that there may be; in bytes.
    pub bytes: u64,
    /// Until when, in seconds since 1970.
    pub expires: i64,
}

impl BlobClaim {
    /// The second at which an address ends that is made now, for a job that may run for so long.
    #[must_use]
    pub fn expiry(now: ServerTime, wall: Duration) -> i64 {
        now.after(wall.saturating_add(GRACE)).as_micros() / 1_000_000
    }

    /// Whether its time is over.
    #[must_use]
    pub const fn has_expired(&self, now: ServerTime) -> bool {
        self.expires <= now.as_micros() / 1_000_000
    }

    /// Every field in one line of its own, so that no two claims have one text.
    fn canonical(&self, method: &str) -> String {
        format!(
            "{method}\n{}\n{}\n{}\n{}\n{}\n{}\n",
            self.tenant,
            self.job,
            self.attempt,
            self.kind.as_str(),
            self.bytes,
            self.expires
        )
    }
}

/// The server's secret under which addresses are signed: of the secret of result tokens, and of no other use.
#[derive(Clone)]
pub struct BlobKey([u8; 32]);

/// HMAC-SHA-256 (RFC 2104) of a claim.
#[derive(Clone, Copy)]
pub struct BlobSignature([u8; 32]);

impl BlobKey {
    pub(crate) const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    fn sign(&self, method: &str, claim: &BlobClaim) -> BlobSignature {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(claim.canonical(method).as_bytes());
        BlobSignature(mac.finalize().into_bytes().into())
    }

    /// Whether a signature is a claim's, for a request of this method. How long it takes says nothing about how much of it
    /// is right.
    #[must_use]
    pub fn verify(&self, method: &str, claim: &BlobClaim, signature: &BlobSignature) -> bool {
        self.sign(method, claim).0.ct_eq(&signature.0).into()
    }

    /// The address of what a claim allows, on a server that is reached by `base`, without a slash at its end.
    #[must_use]
    pub fn url(&self, base: &str, claim: &BlobClaim) -> BlobUrl {
        let signature = hex::encode(self.sign(claim.kind.method(), claim).0);
        BlobUrl(format!(
            "{base}/v1/blobs/{}/{}/{}/{}?bytes={}&expires={}&signature={signature}",
            claim.tenant,
            claim.job,
            claim.attempt,
            claim.kind.as_str(),
            claim.bytes,
            claim.expires
        ))
    }
}

impl fmt::Debug for BlobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlobKey(…)")
    }
}

impl fmt::Debug for BlobSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlobSignature(…)")
    }
}

impl<'de> Deserialize<'de> for BlobSignature {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut bytes = [0; 32];
        // The text is not in the error: it may be a signature with one character too many.
        hex::decode_to_slice(&text, &mut bytes)
            .map_err(|_| de::Error::custom("a signature has 64 hexadecimal digits"))?;
        Ok(Self(bytes))
    }
}

/// An address with its signature. Whoever has it may do what it says, so that it is shown without its query.
#[derive(Clone, PartialEq, Eq)]
pub struct BlobUrl(String);

impl BlobUrl {
    /// All of it, to be sent and to be shown nowhere.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Where a piece of a file is left or fetched, both numbered from 0, at the address of an attempt's files. The numbers are
    /// no part of what is signed: whoever may leave or fetch files may number them.
    #[must_use]
    pub fn of_piece(&self, file: u32, piece: u32) -> Self {
        Self(format!("{}&file={file}&piece={piece}", self.0))
    }

    /// Whether what it leads to travels in clear.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.0.starts_with("http://")
    }
}

impl fmt::Display for BlobUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.split('?').next().unwrap_or_default())
    }
}

impl fmt::Debug for BlobUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobUrl({self}?…)")
    }
}

impl Serialize for BlobUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for BlobUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_http = text.starts_with("http://") || text.starts_with("https://");
        if !is_http || text.len() > MAX_URL_BYTES {
            return Err(de::Error::custom("an address of a blob is an address of HTTP"));
        }
        Ok(Self(text))
    }
}

#[cfg(test)]
mod tests;
