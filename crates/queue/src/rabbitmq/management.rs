//! RabbitMQ's management API, for the one thing that it is needed for here: making and deleting executors' users.

use std::{fmt, time::Duration};

use reqwest::{Client, Method, Url};
use serde_json::{Value, json};

use super::user::{Enrollment, Permissions};

/// How long a call may take.
const LIMIT: Duration = Duration::from_secs(15);

/// A management API, with the credentials of an administrator.
pub struct Management {
    url: Url,
    user: String,
    password: String,
    client: Client,
}

impl fmt::Debug for Management {
    /// Without the credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Management").finish_non_exhaustive()
    }
}

/// A call to the management API that failed.
#[derive(Debug, thiserror::Error)]
pub enum ManagementError {
    /// The address can't be read. What is wrong is not said, since it holds a password.
    #[error("the address of the management API is not of the form http://user:password@host:port")]
    Url,
    /// The API does not answer.
    #[error("the management API does not answer when it is asked to {doing}")]
    NoAnswer {
        /// What was asked for.
        doing: &'static str,
        /// Why; its text has no address.
        #[source]
        source: reqwest::Error,
    },
    /// The API refuses.
    #[error("the management API refuses to {doing} (HTTP {status})")]
    Refused {
        /// What was asked for.
        doing: &'static str,
        /// The answer: 401 for credentials that it doesn't know.
        status: u16,
    },
}

impl Management {
    /// An API at an address like `http://user:password@host:15672`.
    ///
    /// # Errors
    /// [`ManagementError::Url`].
    pub fn new(url: &str) -> Result<Self, ManagementError> {
        let mut url = Url::parse(url).map_err(|_| ManagementError::Url)?;
        if !matches!(url.scheme(), "http" | "https") || url.username().is_empty() {
            return Err(ManagementError::Url);
        }
        let decoded = |text: &str| {
            let query = format!("x={}", text.replace('+', "%2B").replace('&', "%26"));
            let query = Url::parse(&format!("http://x/?{query}")).map_err(|_| ManagementError::Url)?;
            let (_, text) = query.query_pairs().next().ok_or(ManagementError::Url)?;
            Ok(text.into_owned())
        };
        let (user, password) = (
            decoded(url.username())?,
            decoded(url.password().unwrap_or_default())?,
        );
        // Neither belongs into what a client says of an address.
        url.set_username("").map_err(|()| ManagementError::Url)?;
        url.set_password(None).map_err(|()| ManagementError::Url)?;
        let client = Client::builder().timeout(LIMIT).build();
        let client = client.map_err(|source| ManagementError::NoAnswer {
            doing: "begin",
            source,
        })?;
        Ok(Self {
            url,
            user,
            password,
            client,
        })
    }

    /// Makes an executor's user, or gives it a new password and exactly its permissions.
    ///
    /// # Errors
    /// [`ManagementError`]; the user may be there without its permissions, with which it can do nothing.
    pub async fn enroll(&self, vhost: &str, enrollment: &Enrollment) -> Result<(), ManagementError> {
        let user = enrollment.user.as_str();
        let body = json!({"password": enrollment.password, "tags": ""});
        self.call("make a user", Method::PUT, &["users", user], Some(body))
            .await?;
        let Permissions {
            configure,
            write,
            read,
        } = &enrollment.permissions;
        let body = json!({"configure": configure, "write": write, "read": read});
        let path = ["permissions", vhost, user];
        self.call("give a user its permissions", Method::PUT, &path, Some(body))
            .await
    }

    /// Deletes a user, and cuts its connections. One that is not there is deleted.
    ///
    /// # Errors
    /// [`ManagementError`].
    pub async fn withdraw(&self, user: &str) -> Result<(), ManagementError> {
        let deleted = self
            .call("delete a user", Method::DELETE, &["users", user], None)
            .await;
        match deleted {
            Err(ManagementError::Refused { status: 404, .. }) => Ok(()),
            deleted => deleted,
        }
    }

    async fn call(
        &self,
        doing: &'static str,
        method: Method,
        path: &[&str],
        body: Option<Value>,
    ) -> Result<(), ManagementError> {
        let mut url = self.url.clone();
        url.path_segments_mut()
            .map_err(|()| ManagementError::Url)?
            .pop_if_empty()
            .push("api")
            .extend(path);
        let mut request = self
            .client
            .request(method, url)
            .basic_auth(&self.user, Some(&self.password));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.map_err(|source| ManagementError::NoAnswer {
            doing,
            source: source.without_url(),
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        Err(ManagementError::Refused {
            doing,
            status: status.as_u16(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_with_its_credentials_and_shown_without() {
        let management = Management::new("http://ad%40min:p%2Fss+w&d@127.0.0.1:15672").unwrap();
        assert_eq!(
            (management.user.as_str(), management.password.as_str()),
            ("ad@min", "p/ss+w&d")
        );
        assert_eq!(management.url.as_str(), "http://127.0.0.1:15672/");
        for bad in ["http://127.0.0.1:15672", "amqp://a:b@c", "a:b@c"] {
            let error = Management::new(bad).unwrap_err();
            assert!(matches!(error, ManagementError::Url), "{bad}: {error:?}");
        }
    }
}
