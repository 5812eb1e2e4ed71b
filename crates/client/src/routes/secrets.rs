//! Named secrets of the key's tenant.

use mayfly_core::job::{SecretName, SecretText};
use mayfly_wire::secret::{Secret, SecretList, SetSecret};
use reqwest::Method;

use crate::{
    call::{Call, Client},
    error::ClientError,
};

impl Client {
    /// The secrets of the tenant, by name and without their values.
    ///
    /// # Errors
    /// The key may not, or the server does not answer.
    pub async fn secrets(&self) -> Result<Vec<Secret>, ClientError> {
        let list: SecretList = self
            .json(Call::get("list the secrets", &["v1", "secrets"]))
            .await?;
        Ok(list.secrets)
    }

    /// Keeps a value under a name, in place of what was kept there.
    ///
    /// # Errors
    /// The server refuses the value, keeps none, or does not answer.
    pub async fn set_secret(&self, name: &SecretName, value: SecretText) -> Result<Secret, ClientError> {
        let path = ["v1", "secrets", name.as_str()];
        let call = Call::post("set the secret", &path)
            .method(Method::PUT)
            .repeatable();
        self.json(call.json(&SetSecret { value })?).await
    }

    /// Removes a secret.
    ///
    /// # Errors
    /// There is none of this name, or the server does not answer.
    pub async fn remove_secret(&self, name: &SecretName) -> Result<(), ClientError> {
        let path = ["v1", "secrets", name.as_str()];
        self.done(Call::post("remove the secret", &path).method(Method::DELETE))
            .await
    }
}
