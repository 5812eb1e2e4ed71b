//! Clouds, hosting, infrastructure, monitoring.

use super::{Entry, after, token};

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "aws_access_key_id",
        source: "AWS: IAM identifiers (unique id prefixes)",
        shapes: &[token(&["AKIA", "ASIA", "ABIA", "ACCA"], "[0-9A-Z]{16}")],
    },
    Entry {
        name: "aws_secret_access_key",
        source: "AWS: Manage access keys; Environment variables of the CLI",
        shapes: &[after(
            &[
                "aws_secret_access_key",
                "AWS_SECRET_ACCESS_KEY",
                "SecretAccessKey",
                "secretAccessKey",
                "secret_access_key",
            ],
            "[\\s\"'=:>\\\\]{1,8}",
            "[0-9A-Za-z/+]{40}",
        )],
    },
    Entry {
        name: "aws_session_token",
        source: "AWS: Temporary security credentials; Environment variables of the CLI",
        shapes: &[after(
            &[
                "aws_session_token",
                "AWS_SESSION_TOKEN",
                "SessionToken",
                "sessionToken",
            ],
            "[\\s\"':>\\\\=]{1,8}",
            "[0-9A-Za-z/+]{100,}",
        )],
    },
    Entry {
        name: "aws_bedrock_key",
        source: "AWS: Amazon Bedrock API keys",
        shapes: &[
            token(&["ABSK"], "[0-9A-Za-z+/=]{109,}"),
            token(
                &["bedrock-api-key-YmVkcm9jay5hbWF6b25hd3MuY29t"],
                "[\\w+/=-]{20,}",
            ),
        ],
    },
    Entry {
        name: "google_api_key",
        source: "Google Cloud: API keys; gitleaks gcp-api-key",
        shapes: &[token(&["AIza"], "[\\w-]{35}")],
    },
    Entry {
        name: "google_oauth",
        source: "Google: OAuth 2.0 (access tokens, refresh tokens, client secrets)",
        shapes: &[
            token(&["ya29."], "[\\w-]{30,}"),
            token(&["1//0"], "[\\w-]{40,}"),
            token(&["GOCSPX-"], "[\\w-]{28}"),
        ],
    },
    Entry {
        name: "azure_account_key",
        source: "Microsoft: Azure Storage and Service Bus connection strings",
        shapes: &[after(
            &["AccountKey=", "SharedAccessKey="],
            "",
            "[0-9A-Za-z+/=]{43,}",
        )],
    },
    Entry {
        name: "azure_sas_signature",
        source: "Microsoft: Shared access signatures",
        shapes: &[after(
            &["?sig=", "&sig=", "&amp;sig=", "u0026sig="],
            "",
            "[0-9A-Za-z%/+]{43,}",
        )],
    },
    Entry {
        name: "azure_client_secret",
        source: "Microsoft: client secrets of Entra ID; gitleaks azure-ad-client-secret",
        shapes: &[after(
            &[
                "0Q~", "1Q~", "2Q~", "3Q~", "4Q~", "5Q~", "6Q~", "7Q~", "8Q~", "9Q~",
            ],
            "",
            "[\\w.~-]{31,34}",
        )],
    },
    Entry {
        name: "azure_devops_token",
        source: "Microsoft: Azure DevOps personal access tokens (identifiable key format)",
        shapes: &[after(&["JQQJ99"], "", "[0-9A-Za-z]{40,}")],
    },
    Entry {
        name: "alibaba_access_key_id",
        source: "Alibaba Cloud: AccessKey pairs; gitleaks alibaba-access-key-id",
        shapes: &[token(&["LTAI"], "[0-9A-Za-z]{20}")],
    },
    Entry {
        name: "yandex_key",
        source: "Yandex Cloud: API keys; gitleaks yandex-api-key",
        shapes: &[token(&["AQVN"], "[\\w-]{35,38}")],
    },
    Entry {
        name: "digitalocean_token",
        source: "DigitalOcean: token prefixes (API release notes)",
        shapes: &[token(&["dop_v1_", "doo_v1_", "dor_v1_"], "[0-9a-f]{64,}")],
    },
    Entry {
        name: "heroku_key",
        source: "Heroku: platform API keys (HRKU prefix)",
        shapes: &[token(&["HRKU-"], "[\\w-]{36,}")],
    },
    Entry {
        name: "flyio_token",
        source: "Fly.io: Access tokens",
        shapes: &[
            token(&["fo1_"], "[\\w-]{43}"),
            token(&["fm1a_", "fm1r_", "fm2_"], "[0-9A-Za-z+/=]{100,}"),
        ],
    },
    Entry {
        name: "cloudflare_origin_ca_key",
        source: "Cloudflare: Origin CA keys",
        shapes: &[token(&["v1.0-"], "[0-9a-f]{24}-[0-9a-f]{146,}")],
    },
    Entry {
        name: "netlify_token",
        source: "Netlify: personal access token prefixes",
        shapes: &[token(&["nfp_", "nfc_", "nfo_", "nfu_"], "[0-9A-Za-z]{36,}")],
    },
    Entry {
        name: "scalingo_token",
        source: "Scalingo: API tokens",
        shapes: &[token(&["tk-us-"], "[\\w-]{48,}")],
    },
    Entry {
        name: "hashicorp_vault_token",
        source: "HashiCorp Vault: Tokens (token prefixes)",
        shapes: &[token(&["hvs.", "hvb.", "hvr."], "[\\w-]{24,}")],
    },
    Entry {
        name: "hashicorp_terraform_token",
        source: "HashiCorp: HCP Terraform API tokens",
        shapes: &[after(&[".atlasv1."], "", "[\\w=-]{60,}")],
    },
    Entry {
        name: "doppler_token",
        source: "Doppler: Token formats",
        shapes: &[
            token(
                &["dp.pt.", "dp.ct.", "dp.sa.", "dp.scim.", "dp.audit."],
                "[0-9A-Za-z]{40,}",
            ),
            token(&["dp.st."], "[\\w-]{2,35}\\.[0-9A-Za-z]{40,}"),
        ],
    },
    Entry {
        name: "onepassword_key",
        source: "1Password: Service accounts; Secret Key (security design white paper)",
        shapes: &[
            token(&["ops_eyJ"], "[0-9A-Za-z+/=_-]{250,}"),
            token(
                &["A3-"],
                "[0-9A-Z]{6}-[0-9A-Z]{6}-[0-9A-Z]{5}-[0-9A-Z]{5}-[0-9A-Z]{5}-[0-9A-Z]{5}",
            ),
        ],
    },
    Entry {
        name: "tailscale_key",
        source: "Tailscale: Key prefixes",
        shapes: &[token(
            &["tskey-"],
            "[a-z]{2,9}-[0-9A-Za-z]{8,24}-[0-9A-Za-z]{16,}",
        )],
    },
    Entry {
        name: "databricks_token",
        source: "Databricks: Personal access tokens",
        shapes: &[token(&["dapi"], "[0-9a-f]{32}")],
    },
    Entry {
        name: "planetscale_token",
        source: "PlanetScale: Service tokens and passwords",
        shapes: &[token(
            &["pscale_tkn_", "pscale_pw_", "pscale_oauth_"],
            "[\\w=.-]{32,}",
        )],
    },
    Entry {
        name: "supabase_key",
        source: "Supabase: API keys; Personal access tokens",
        shapes: &[
            token(&["sbp_"], "[0-9a-f]{40,}"),
            token(&["sb_secret_"], "[\\w-]{20,}"),
        ],
    },
    Entry {
        name: "grafana_token",
        source: "Grafana: Service accounts; Grafana Cloud access policies",
        shapes: &[
            token(&["glsa_"], "[0-9A-Za-z]{32}_[0-9A-Fa-f]{8,}"),
            token(&["glc_eyJ"], "[0-9A-Za-z+/=]{32,}"),
            token(&["eyJrIjoi"], "[0-9A-Za-z=]{70,}"),
        ],
    },
    Entry {
        name: "newrelic_key",
        source: "New Relic: API keys",
        shapes: &[
            token(&["NRAK-"], "[0-9A-Z]{27,}"),
            token(&["NRII-"], "[\\w-]{32,}"),
            token(&["NRJS-"], "[0-9a-f]{19,}"),
            token(&["NRSP-"], "[0-9A-Za-z-]{20,}"),
        ],
    },
    Entry {
        name: "dynatrace_token",
        source: "Dynatrace: Access tokens (token format)",
        shapes: &[token(
            &["dt0c01.", "dt0s01.", "dt0s16."],
            "[0-9A-Z]{24}\\.[0-9A-Z]{64,}",
        )],
    },
    Entry {
        name: "sentry_token",
        source: "Sentry: Auth tokens (sntrys_, sntryu_)",
        shapes: &[
            token(&["sntryu_"], "[0-9a-f]{64,}"),
            token(&["sntrys_eyJ"], "[\\w+/=]{60,}"),
        ],
    },
    Entry {
        name: "openshift_token",
        source: "OpenShift: OAuth access tokens; gitleaks openshift-user-token",
        shapes: &[token(&["sha256~"], "[\\w-]{43}")],
    },
];
