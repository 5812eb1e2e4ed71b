//! A server's API, as the tests' client has it.

use serde_json::Value;

/// A server's API, as a client has it.
pub struct Api {
    pub(super) client: reqwest::Client,
    pub(super) url: String,
    pub(super) key: String,
}

impl Api {
    /// Sends a request without a body.
    pub async fn get(&self, path: &str) -> reqwest::Response {
        let request = self
            .client
            .get(format!("{}{path}", self.url))
            .bearer_auth(&self.key);
        request.send().await.expect("the server answers")
    }

    /// The same; nothing where no answer comes.
    pub async fn try_get(&self, path: &str) -> Option<(u16, Value)> {
        answer(
            self.client
                .get(format!("{}{path}", self.url))
                .bearer_auth(&self.key),
        )
        .await
    }

    /// Submits a job under an idempotency key; nothing where no answer comes.
    pub async fn try_submit(&self, idempotency_key: &str, job: &Value) -> Option<(u16, Value)> {
        let request = self
            .client
            .post(format!("{}/v1/jobs", self.url))
            .header("Idempotency-Key", idempotency_key)
            .bearer_auth(&self.key)
            .json(job);
        answer(request).await
    }

    /// Sends a request without a body by another method, and reads the problem, where the answer is one.
    pub async fn act(&self, method: &str, path: &str) -> (u16, Value) {
        let method = method.parse().expect("it is a method");
        let request = self.client.request(method, format!("{}{path}", self.url));
        let answer = request.bearer_auth(&self.key).send().await;
        let answer = answer.expect("the server answers");
        let status = answer.status().as_u16();
        let text = answer.text().await.expect("the answer is text");
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    /// Sends a body of so many bytes, and reads JSON.
    pub async fn put(&self, path: &str, bytes: u64, body: reqwest::Body) -> (u16, Value) {
        let request = self
            .client
            .put(format!("{}{path}", self.url))
            .bearer_auth(&self.key)
            .header("content-length", bytes)
            .body(body);
        answer(request).await.expect("the server answers")
    }

    /// Sends JSON, and reads JSON.
    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self
            .client
            .post(format!("{}{path}", self.url))
            .bearer_auth(&self.key)
            .json(body);
        let answer = request.send().await.expect("the server answers");
        let status = answer.status().as_u16();
        (status, answer.json().await.expect("the answer is JSON"))
    }

    /// Waits until a job's events have this text among them.
    pub async fn hear(&self, job: &str, text: &str) {
        let mut events = self.get(&format!("/v1/jobs/{job}/events")).await;
        let mut heard = String::new();
        while let Some(chunk) = events.chunk().await.expect("the stream goes on") {
            heard.push_str(&String::from_utf8_lossy(&chunk));
            if heard.contains(text) {
                return;
            }
        }
        panic!("the stream has ended without `{text}`: {heard}");
    }
}

async fn answer(request: reqwest::RequestBuilder) -> Option<(u16, Value)> {
    let answer = request.send().await.ok()?;
    Some((answer.status().as_u16(), answer.json().await.ok()?))
}
