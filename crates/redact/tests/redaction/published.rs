//! Tokens as their issuers print them in their own documents: none of these was made from a pattern of the table.
//!
//! They open nothing, and are put together here, so that no scanner takes this file for a leak.

use mayfly_redact::{Matcher, Secrets};

use crate::{in_chunks, matcher, only};

/// The rule, where it is printed, what stands before the secret there, the secret in parts, and what follows.
type Example = (
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static str,
);

const EXAMPLES: &[Example] = &[
    (
        "aws_access_key_id",
        "AWS CLI: Configuration and credential file settings",
        "[default]\naws_access_key_id=",
        &["AKIA", "IOSFODNN7", "EXAMPLE"],
        "\n",
    ),
    (
        "aws_secret_access_key",
        "AWS CLI: Configuration and credential file settings",
        "aws_secret_access_key=",
        &["wJalrXUtnFEMI/", "K7MDENG/", "bPxRfiCYEXAMPLEKEY"],
        "\n",
    ),
    (
        "azure_account_key",
        "Microsoft: Azurite, the emulator's well-known account",
        "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=",
        &[
            "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/",
            "K1SZFPTOtr/KBHBeksoGMGw==",
        ],
        ";BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;",
    ),
    (
        "google_api_key",
        "Google Cloud: Authenticate by using API keys",
        "key=",
        &["AIza", "SyDaGmWKa4JsXZ-", "HjGw7ISLn_3namBGewQe"],
        "\n",
    ),
    (
        "github_token",
        "GitHub REST API: Authorizations",
        "{\"token\": \"",
        &["ghp_", "16C7e42F292c6912E7710c838347Ae178B4a"],
        "\"}",
    ),
    (
        "github_token",
        "GitHub: Refreshing user access tokens",
        "refresh_token=",
        &[
            "ghr_",
            "1B4a2e77838347a7E420ce178F2E7c6912E169246c34E1ccbF66C46812d16D5B1A9Dc86A1498",
        ],
        "&scope=&token_type=bearer",
    ),
    (
        "stripe_key",
        "Stripe: API reference, Authentication",
        "curl https://api.stripe.com/v1/charges -u ",
        &["sk_", "test_", "4eC39HqLyjWDarjtT1zdp7dc"],
        ":",
    ),
    (
        "sendgrid_key",
        "SendGrid: API keys",
        "\"api_key\": \"",
        &[
            "SG.",
            "ngeVfQFYQlKU0ufo8x5d1A.",
            "TwL2iGABf9DHoTf-09kqeF8tAmbihYzrnopKc-1s5cr",
        ],
        "\"",
    ),
    (
        "jwt",
        "RFC 7515 appendix A.1.1",
        "",
        &[
            "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.",
            "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.",
            "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        ],
        "\n",
    ),
    (
        "authorization_bearer",
        "RFC 6750 section 2.1",
        "GET /resource HTTP/1.1\r\nHost: server.example.com\r\nAuthorization: Bearer ",
        &["mF_9.B5f-", "4.1JqM"],
        "\r\n",
    ),
    (
        "authorization_basic",
        "RFC 7617 section 2",
        "Authorization: Basic ",
        &["QWxhZGRpbjpvcGVu", "IHNlc2FtZQ=="],
        "\r\n",
    ),
    (
        "url_password",
        "PostgreSQL: Connection URIs",
        "postgresql://user:",
        &["sec", "ret"],
        "@localhost/mydb",
    ),
];

#[test]
fn what_issuers_print_as_examples_is_taken_out() {
    let all = matcher(&[]);
    let mut against = Vec::new();
    for (rule, printed_in, before, secret, after) in EXAMPLES {
        let secret = secret.concat();
        let text = [before, secret.as_str(), after].concat();
        let alone = Matcher::new(&only(rule), &Secrets::default());
        for chunk in [1, 7, text.len()] {
            let (out, counts) = in_chunks(&alone, text.as_bytes(), &[chunk]);
            let out = String::from_utf8(out).unwrap();
            let rest_stands = out.starts_with(before) && out.ends_with(after);
            if counts.of(rule) != 1 || out.contains(&secret) || !rest_stands {
                against.push(format!("{rule} ({printed_in}): {out:?}"));
            }
        }
        let (out, _) = all.redact(text.as_bytes());
        let out = String::from_utf8(out).unwrap();
        if out.contains(&secret) {
            against.push(format!("all rules ({printed_in}): {out:?}"));
        }
    }
    assert!(against.is_empty(), "{against:#?}");
}
