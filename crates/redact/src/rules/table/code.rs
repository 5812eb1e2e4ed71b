//! Forges, package registries, builds.

use super::{Entry, after, token};

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "github_token",
        source: "GitHub: About authentication to GitHub (token formats)",
        shapes: &[
            token(&["ghp_", "gho_", "ghu_", "ghr_"], "[0-9A-Za-z]{36,}"),
            token(&["ghs_"], "[\\w.-]{36,}"),
        ],
    },
    Entry {
        name: "github_fine_grained_token",
        source: "GitHub: About authentication to GitHub (token formats)",
        shapes: &[token(&["github_pat_"], "\\w{82,}")],
    },
    Entry {
        name: "gitlab_token",
        source: "GitLab: Token overview (token prefixes)",
        shapes: &[
            token(
                &[
                    "glpat-", "gldt-", "glrt-", "glrtr-", "glptt-", "glft-", "glimt-", "glagent-", "gloas-",
                    "glsoat-", "glffct-", "glwt-",
                ],
                "[\\w.-]{20,}",
            ),
            token(&["glcbt-"], "[0-9A-Za-z]{1,5}_[\\w.-]{20,}"),
            token(&["GR1348941"], "[\\w-]{20,}"),
            after(&["_gitlab_session="], "", "[0-9a-z]{32,}"),
        ],
    },
    Entry {
        name: "bitbucket_token",
        source: "Atlassian: API tokens and Bitbucket access tokens",
        shapes: &[
            token(&["ATBB"], "[0-9A-Za-z]{24}[0-9A-F]{8}"),
            token(&["ATCTT3xFf"], "[\\w=-]{100,}"),
        ],
    },
    Entry {
        name: "atlassian_token",
        source: "Atlassian: Manage API tokens; gitleaks atlassian-api-token",
        shapes: &[token(&["ATATT3"], "[\\w=-]{150,}")],
    },
    Entry {
        name: "npm_token",
        source: "npm: About access tokens; GitHub: npm token format",
        shapes: &[token(&["npm_"], "[0-9A-Za-z]{36,}")],
    },
    Entry {
        name: "pypi_token",
        source: "PyPI: API tokens (macaroons for pypi.org and test.pypi.org)",
        shapes: &[token(
            &["pypi-AgEIcHlwaS5vcmc", "pypi-AgENdGVzdC5weXBpLm9yZw"],
            "[\\w-]{50,}",
        )],
    },
    Entry {
        name: "crates_io_token",
        source: "crates.io: API token prefix",
        shapes: &[token(&["cio"], "[0-9A-Za-z]{32}")],
    },
    Entry {
        name: "rubygems_token",
        source: "RubyGems: API keys; gitleaks rubygems-api-token",
        shapes: &[token(&["rubygems_"], "[0-9a-f]{48,}")],
    },
    Entry {
        name: "nuget_key",
        source: "Microsoft: NuGet API keys (GitHub secret scanning partner)",
        shapes: &[token(&["oy2"], "[0-9a-z]{43}")],
    },
    Entry {
        name: "clojars_token",
        source: "Clojars: Deploy tokens",
        shapes: &[token(&["CLOJARS_"], "[0-9a-f]{60,}")],
    },
    Entry {
        name: "docker_hub_token",
        source: "Docker: Personal and organization access tokens",
        shapes: &[token(&["dckr_pat_", "dckr_oat_"], "[\\w-]{27,}")],
    },
    Entry {
        name: "artifactory_token",
        source: "JFrog: API keys and reference tokens",
        shapes: &[
            token(&["AKCp"], "[0-9A-Za-z]{69,}"),
            token(&["cmVmdGtuO"], "[0-9A-Za-z]{54,}"),
        ],
    },
    Entry {
        name: "circleci_token",
        source: "CircleCI: API tokens",
        shapes: &[token(&["CCIPAT_", "CCIPRJ_"], "[0-9A-Za-z]{20,22}_[0-9a-f]{40,}")],
    },
    Entry {
        name: "buildkite_token",
        source: "Buildkite: Token security",
        shapes: &[token(&["bkua_", "bkct_", "bkpt_"], "[0-9a-zA-Z]{40,}")],
    },
    Entry {
        name: "sonar_token",
        source: "SonarQube: Managing your tokens",
        shapes: &[token(&["sqp_", "squ_", "sqa_"], "[0-9a-f]{40,}")],
    },
    Entry {
        name: "sourcegraph_token",
        source: "Sourcegraph: Access token formats",
        shapes: &[
            token(&["sgp_"], "[0-9a-f]{40,}"),
            token(&["sgp_local_"], "[0-9a-f]{40,}"),
            token(&["sgp_"], "[0-9a-f]{16}_[0-9a-f]{40,}"),
        ],
    },
    Entry {
        name: "octopus_key",
        source: "Octopus Deploy: How to create an API key",
        shapes: &[token(&["API-"], "[0-9A-Z]{25,34}")],
    },
    Entry {
        name: "pulumi_token",
        source: "Pulumi: Access tokens",
        shapes: &[token(&["pul-"], "[0-9a-f]{40}")],
    },
    Entry {
        name: "prefect_key",
        source: "Prefect: Manage API keys",
        shapes: &[token(&["pnu_", "pnb_"], "[0-9A-Za-z]{36,}")],
    },
    Entry {
        name: "harness_key",
        source: "Harness: API key token structure",
        shapes: &[token(
            &["pat.", "sat."],
            "[\\w-]{22}\\.[0-9A-Za-z]{24}\\.[0-9A-Za-z]{20,}",
        )],
    },
    Entry {
        name: "postman_key",
        source: "Postman: API keys",
        shapes: &[token(&["PMAK-"], "[0-9a-f]{24}-[0-9a-f]{34,}")],
    },
    Entry {
        name: "launchdarkly_key",
        source: "LaunchDarkly: Keys",
        shapes: &[token(
            &["sdk-"],
            "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        )],
    },
];
