//! A client of the fleet's API that does not give up: what it was promised with 2xx is what is counted.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    history::program,
    support::{Role, served_at},
};

/// Longer than any fault keeps a server from answering.
const PATIENCE: Duration = Duration::from_secs(180);
/// A server that is cut off from its database answers late or never.
const ANSWER: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    http: reqwest::Client,
    key: String,
    /// The server serves at another port in each of its lives.
    log: PathBuf,
}

/// What a job is to do.
#[derive(Debug, Clone)]
pub struct Wish {
    /// What its program says.
    pub token: String,
    pub run_ms: u64,
    /// How many attempts it may have.
    pub attempts: u32,
}

impl Client {
    pub fn new(key: String, server: &Role) -> Self {
        let http = reqwest::Client::builder().timeout(ANSWER).build();
        Self(Arc::new(Inner {
            http: http.expect("a client of HTTP"),
            key,
            log: server.log_file(),
        }))
    }

    /// Asks until it is answered with success, whoever and whatever is away meanwhile.
    async fn ask(
        &self,
        method: reqwest::Method,
        path: &str,
        body: Option<&Value>,
        once: Option<&str>,
    ) -> Value {
        let Inner { http, key, log } = &*self.0;
        let begun = Instant::now();
        loop {
            let log = std::fs::read_to_string(log).unwrap_or_default();
            if let Some(url) = served_at(&log) {
                let mut request = http
                    .request(method.clone(), format!("{url}{path}"))
                    .bearer_auth(key);
                if let Some(body) = body {
                    request = request.json(body);
                }
                if let Some(once) = once {
                    request = request.header("Idempotency-Key", once);
                }
                if let Some(answer) = success(request).await {
                    return answer;
                }
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "waited {PATIENCE:?} for the API to answer"
            );
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Submits a job until it is accepted, once.
    pub async fn submit(&self, wish: &Wish) -> String {
        let body = json!({
            "image": "python",
            "source": { "language": "python", "text": program(&wish.token, wish.run_ms) },
            "retry": { "max_attempts": wish.attempts },
            // More than a machine that does much else takes over it.
            "limits": { "wall": "120s" },
        });
        let answer = self.ask(reqwest::Method::POST, "/v1/jobs", Some(&body), Some(&wish.token));
        let answer = answer.await;
        answer["job"].as_str().expect("a job has an id").to_owned()
    }

    /// A job as it is now.
    pub async fn job(&self, job: &str) -> Value {
        self.ask(reqwest::Method::GET, &format!("/v1/jobs/{job}"), None, None)
            .await
    }

    /// Asks for its end.
    pub async fn cancel(&self, job: &str) {
        let path = format!("/v1/jobs/{job}/cancel");
        self.ask(reqwest::Method::POST, &path, Some(&json!({})), None)
            .await;
    }
}

/// What a request is answered with, if that is success. A refusal is a fault of the test.
async fn success(request: reqwest::RequestBuilder) -> Option<Value> {
    let answer = request.send().await.ok()?;
    let (status, url) = (answer.status(), answer.url().clone());
    let text = answer.text().await.ok()?;
    assert!(
        status.is_success() || status.is_server_error() || status.as_u16() == 429,
        "{url}: {status}: {text}"
    );
    serde_json::from_str(&text).ok().filter(|_| status.is_success())
}
