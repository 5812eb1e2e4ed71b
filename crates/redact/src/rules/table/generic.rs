//! What is no one service's own.

use super::{Entry, From, Until, after, token};

/// The first line of a private key, never whole in this file, and without its first dashes: in many logs are lines of them.
macro_rules! pem {
    ($kind:literal) => {
        concat!("BEGIN ", $kind, "PRIVATE", " KEY-----")
    };
    ($kind:literal BLOCK) => {
        concat!("BEGIN ", $kind, "PRIVATE", " KEY BLOCK-----")
    };
}

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "private_key",
        source: "RFC 7468 (PKCS 8), RFC 1421, OpenSSH PROTOCOL.key, RFC 9580 (OpenPGP)",
        shapes: &[
            token(
                &[
                    pem!(""),
                    pem!("RSA "),
                    pem!("EC "),
                    pem!("DSA "),
                    pem!("OPENSSH "),
                    pem!("ENCRYPTED "),
                    pem!("PGP " BLOCK),
                ],
                "[0-9A-Za-z+/=\\s\\\\:,.()-]{48,}",
            )
            .from(From::Anywhere)
            .until(Until::PemLine),
            // The same in base64, as in a Kubernetes secret.
            token(
                &[
                    "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0t",
                    "LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVkt",
                    "LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0t",
                    "LS0tLS1CRUdJTiBPUEVOU1NIIFBSSVZBVEUgS0VZLS0t",
                    "LS0tLS1CRUdJTiBFTkNSWVBURUQgUFJJVkFURSBLRVkt",
                ],
                "[0-9A-Za-z+/=]{48,}",
            ),
        ],
    },
    Entry {
        name: "jwt",
        source: "RFC 7519 (JWT), RFC 7516 (JWE), compact serialization",
        shapes: &[
            token(&["eyJ"], "[\\w-]{14,1024}\\.eyJ[\\w.-]{10,}").from(From::FirstSet),
            // Encrypted, or with a long header: by how a header begins ({"alg", {"enc", {"typ", {"kid", {"cty", {"x5).
            token(&["eyJhbGciOi"], "[\\w-]{7,1024}\\.[\\w.-]{40,}").from(From::FirstSet),
            token(
                &[
                    "eyJhbGciOi",
                    "eyJlbmMiOi",
                    "eyJ0eXAiOi",
                    "eyJraWQiOi",
                    "eyJjdHkiOi",
                    "eyJ4NX",
                    "eyJ4NW",
                ],
                "[\\w-]{1024,}",
            )
            .from(From::FirstSet),
        ],
    },
    Entry {
        name: "authorization_bearer",
        source: "RFC 6750 (bearer tokens)",
        shapes: &[after(
            &[
                "Authorization: Bearer ",
                "Authorization: bearer ",
                "authorization: Bearer ",
                "authorization: bearer ",
                "AUTHORIZATION: Bearer ",
                "Authorization:Bearer ",
                "Authorization\": \"Bearer ",
                "Authorization\":\"Bearer ",
                "authorization\": \"Bearer ",
                "authorization\":\"Bearer ",
                "Authorization': 'Bearer ",
                "authorization': 'Bearer ",
            ],
            "",
            "[\\w.~+/=-]{8,}",
        )],
    },
    Entry {
        name: "authorization_basic",
        source: "RFC 7617 (basic authentication)",
        shapes: &[after(
            &[
                "Authorization: Basic ",
                "Authorization: basic ",
                "authorization: Basic ",
                "authorization: basic ",
                "Authorization:Basic ",
                "Authorization\": \"Basic ",
                "Authorization\":\"Basic ",
                "authorization\": \"Basic ",
                "authorization\":\"Basic ",
                "Authorization': 'Basic ",
                "authorization': 'Basic ",
            ],
            "",
            "[\\w+/=-]{8,}",
        )],
    },
    Entry {
        name: "url_password",
        source: "RFC 3986, section 3.2.1 (userinfo)",
        shapes: &[after(
            &["://"],
            "[\\w.~%!$&'()*+,;=-]{0,128}:",
            "[\\w.~%!$&'()*+,;=:-]{1,512}",
        )
        .until(Until::Before("@"))],
    },
    Entry {
        name: "age_secret_key",
        source: "age: the file format (C2SP age)",
        shapes: &[
            token(&["AGE-SECRET-KEY-1"], "[02-9AC-HJ-NP-Z]{58}"),
            token(&["AGE-SECRET-KEY-PQ-1"], "[02-9AC-HJ-NP-Z]{58,}"),
        ],
    },
];
