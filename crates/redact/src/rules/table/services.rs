//! Models, payments, messages, everything else.

use super::{Entry, after, token};

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "anthropic_key",
        source: "Anthropic: API keys; gitleaks anthropic-api-key, anthropic-admin-api-key",
        shapes: &[token(&["sk-ant-"], "[a-z]{3,8}[0-9]{2}-[\\w-]{80,}")],
    },
    Entry {
        name: "openai_key",
        source: "OpenAI: API keys; gitleaks openai-api-key",
        shapes: &[
            token(&["sk-proj-", "sk-svcacct-", "sk-admin-"], "[\\w-]{58,}"),
            token(&["sk-"], "[0-9A-Za-z]{20}T3BlbkFJ[0-9A-Za-z]{20,}"),
        ],
    },
    Entry {
        name: "openrouter_key",
        source: "OpenRouter: API keys (GitHub secret scanning partner)",
        shapes: &[token(&["sk-or-v1-"], "[0-9a-f]{64,}")],
    },
    Entry {
        name: "huggingface_token",
        source: "Hugging Face: User access tokens; gitleaks huggingface-access-token",
        shapes: &[token(&["hf_", "api_org_"], "[A-Za-z]{34}")],
    },
    Entry {
        name: "groq_key",
        source: "Groq: API keys (GitHub secret scanning partner)",
        shapes: &[token(&["gsk_"], "[0-9A-Za-z]{52,}")],
    },
    Entry {
        name: "xai_key",
        source: "xAI: API keys",
        shapes: &[token(&["xai-"], "[0-9A-Za-z]{70,}")],
    },
    Entry {
        name: "perplexity_key",
        source: "Perplexity: API keys; gitleaks perplexity-api-key",
        shapes: &[token(&["pplx-"], "[0-9A-Za-z]{48,}")],
    },
    Entry {
        name: "replicate_token",
        source: "Replicate: API tokens",
        shapes: &[token(&["r8_"], "[0-9A-Za-z]{37}")],
    },
    Entry {
        name: "langsmith_key",
        source: "LangSmith: API keys",
        shapes: &[token(&["lsv2_pt_", "lsv2_sk_"], "[0-9a-f]{32}_[0-9a-f]{10,}")],
    },
    Entry {
        name: "stripe_key",
        source: "Stripe: API keys; Webhook signing secrets",
        shapes: &[
            token(
                &[
                    "sk_live_", "sk_test_", "sk_prod_", "rk_live_", "rk_test_", "rk_prod_",
                ],
                "[0-9A-Za-z]{16,}",
            ),
            token(&["whsec_"], "[0-9A-Za-z+/=]{32,}"),
        ],
    },
    Entry {
        name: "square_token",
        source: "Square: Access tokens; gitleaks square-access-token",
        shapes: &[
            token(&["sq0atp-"], "[\\w-]{22,}"),
            token(&["sq0csp-"], "[\\w-]{43,}"),
        ],
    },
    Entry {
        name: "braintree_token",
        source: "PayPal Braintree: Access tokens",
        shapes: &[token(
            &["access_token$production$", "access_token$sandbox$"],
            "[0-9a-z]{16}\\$[0-9a-f]{32,}",
        )],
    },
    Entry {
        name: "plaid_token",
        source: "Plaid: Tokens",
        shapes: &[token(
            &["access-sandbox-", "access-development-", "access-production-"],
            "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12,}",
        )],
    },
    Entry {
        name: "flutterwave_key",
        source: "Flutterwave: API keys; gitleaks flutterwave-secret-key",
        shapes: &[token(&["FLWSECK_TEST-", "FLWSECK-"], "[0-9a-z]{32}-X")],
    },
    Entry {
        name: "easypost_key",
        source: "EasyPost: API keys",
        shapes: &[token(&["EZAK", "EZTK"], "[0-9A-Za-z]{54}")],
    },
    Entry {
        name: "shippo_token",
        source: "Shippo: Authentication",
        shapes: &[token(&["shippo_live_", "shippo_test_"], "[0-9A-Fa-f]{40,}")],
    },
    Entry {
        name: "duffel_token",
        source: "Duffel: API tokens",
        shapes: &[token(&["duffel_live_", "duffel_test_"], "[\\w=-]{43,}")],
    },
    Entry {
        name: "shopify_token",
        source: "Shopify: Access token prefixes",
        shapes: &[token(
            &["shpat_", "shpca_", "shppa_", "shpss_", "shpua_"],
            "[0-9A-Fa-f]{32,}",
        )],
    },
    Entry {
        name: "slack_token",
        source: "Slack: Token types",
        shapes: &[
            token(
                &["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxo-", "xoxe-"],
                "[0-9]{1,14}-[\\w-]{18,}",
            ),
            token(&["xoxc-", "xoxd-"], "[\\w%-]{40,}"),
            token(&["xoxe.xoxb-", "xoxe.xoxp-"], "[0-9]-[\\w-]{80,}"),
            token(&["xapp-"], "[0-9]-[0-9A-Z]{5,16}-[0-9]{5,16}-[0-9a-f]{32,}"),
        ],
    },
    Entry {
        name: "slack_webhook",
        source: "Slack: Incoming webhooks",
        shapes: &[after(
            &[
                "hooks.slack.com/services/",
                "hooks.slack.com/workflows/",
                "hooks.slack.com/triggers/",
            ],
            "",
            "[\\w/+-]{40,}",
        )],
    },
    Entry {
        name: "discord_webhook",
        source: "Discord: Webhook resource",
        shapes: &[after(
            &["discord.com/api/webhooks/", "discordapp.com/api/webhooks/"],
            "[0-9]{17,20}/",
            "[\\w-]{60,}",
        )],
    },
    Entry {
        name: "teams_webhook",
        source: "Microsoft Teams: Incoming webhooks",
        shapes: &[after(&[".webhook.office.com/webhookb2/"], "", "[\\w@/-]{100,}")],
    },
    Entry {
        name: "telegram_bot_token",
        source: "Telegram: Bot API (authorizing your bot)",
        shapes: &[after(&[":AA"], "", "[\\w-]{33}")],
    },
    Entry {
        name: "facebook_token",
        source: "Meta: Access tokens; gitleaks facebook-page-access-token",
        shapes: &[token(&["EAAM", "EAAC", "EAAB", "EAAG"], "[0-9A-Za-z]{100,}")],
    },
    Entry {
        name: "twilio_key",
        source: "Twilio: API keys (SID SK…)",
        shapes: &[token(
            &[
                "SK0", "SK1", "SK2", "SK3", "SK4", "SK5", "SK6", "SK7", "SK8", "SK9", "SKa", "SKb", "SKc",
                "SKd", "SKe", "SKf",
            ],
            "[0-9a-f]{31}",
        )],
    },
    Entry {
        name: "sendgrid_key",
        source: "Twilio SendGrid: API keys",
        shapes: &[token(&["SG."], "[\\w-]{22}\\.[\\w-]{43,}")],
    },
    Entry {
        name: "brevo_key",
        source: "Brevo (Sendinblue): API keys",
        shapes: &[token(&["xkeysib-", "xsmtpsib-"], "[0-9a-f]{64}-[0-9A-Za-z]{16,}")],
    },
    Entry {
        name: "airtable_token",
        source: "Airtable: Personal access tokens; gitleaks airtable-personnal-access-token",
        shapes: &[token(&["pat"], "[0-9A-Za-z]{14}\\.[0-9a-f]{64,}")],
    },
    Entry {
        name: "notion_token",
        source: "Notion: Authorization (token formats)",
        shapes: &[
            token(&["ntn_"], "[0-9A-Za-z]{40,}"),
            token(&["secret_"], "[0-9A-Za-z]{43}"),
        ],
    },
    Entry {
        name: "linear_key",
        source: "Linear: API keys",
        shapes: &[token(&["lin_api_", "lin_oauth_"], "[0-9A-Za-z]{40,}")],
    },
    Entry {
        name: "figma_token",
        source: "Figma: Personal access tokens",
        shapes: &[token(&["figd_"], "[\\w-]{38,}")],
    },
    Entry {
        name: "dropbox_token",
        source: "Dropbox: OAuth guide (short-lived tokens)",
        shapes: &[token(&["sl.u."], "[\\w-]{100,}"), token(&["sl."], "[\\w-]{130,}")],
    },
    Entry {
        name: "contentful_token",
        source: "Contentful: Personal access tokens",
        shapes: &[token(&["CFPAT-"], "[\\w-]{43,}")],
    },
    Entry {
        name: "readme_key",
        source: "ReadMe: API keys; gitleaks readme-api-token",
        shapes: &[token(&["rdme_"], "[0-9a-z]{70,}")],
    },
    Entry {
        name: "typeform_token",
        source: "Typeform: Personal access tokens",
        shapes: &[token(&["tfp_"], "[\\w.=-]{44,}")],
    },
    Entry {
        name: "adafruit_key",
        source: "Adafruit IO: API keys (aio_)",
        shapes: &[token(&["aio_"], "[0-9A-Za-z]{28}")],
    },
    Entry {
        name: "frameio_token",
        source: "Frame.io: Developer tokens",
        shapes: &[token(&["fio-u-"], "[\\w=-]{64,}")],
    },
    Entry {
        name: "zapier_webhook",
        source: "Zapier: Webhooks",
        shapes: &[after(
            &["hooks.zapier.com/hooks/catch/"],
            "[0-9]{5,10}/",
            "[0-9a-z]{6,}",
        )],
    },
];
