//! Tenants and keys.

use mayfly_core::id::{KeyId, TenantId};
use mayfly_wire::{
    account::{ChangeTenant, CreatedKey, Key, KeyList, NewKey, NewTenant, Tenant, TenantList},
    health::Whoami,
};
use reqwest::Method;

use crate::{
    call::{Call, Client},
    error::ClientError,
    page::Pages,
};

impl Client {
    /// Who this client is.
    ///
    /// # Errors
    /// The key opens nothing, or the server does not answer.
    pub async fn whoami(&self) -> Result<Whoami, ClientError> {
        self.json(Call::get("ask who the key is", &["v1", "whoami"]))
            .await
    }

    /// Makes a tenant. It is not repeated once the server may have done it.
    ///
    /// # Errors
    /// There is one of that name, the server refuses it or does not answer.
    pub async fn create_tenant(&self, tenant: &NewTenant) -> Result<Tenant, ClientError> {
        let call = Call::post("make the tenant", &["v1", "tenants"]);
        self.json(call.json(tenant)?).await
    }

    /// Tenants, oldest first, in pages of this many.
    #[must_use]
    pub fn tenants(&self, page: u32) -> Pages<TenantList> {
        Pages::new(self, "list tenants", &["v1", "tenants"]).query("limit", Some(page))
    }

    /// A tenant.
    ///
    /// # Errors
    /// There is no such tenant, or the server does not answer.
    pub async fn tenant(&self, tenant: TenantId) -> Result<Tenant, ClientError> {
        let id = tenant.to_string();
        self.json(Call::get("show the tenant", &["v1", "tenants", &id]))
            .await
    }

    /// Changes a tenant's weight and quotas.
    ///
    /// # Errors
    /// There is no such tenant, the server refuses it or does not answer.
    pub async fn change_tenant(
        &self,
        tenant: TenantId,
        change: &ChangeTenant,
    ) -> Result<Tenant, ClientError> {
        let id = tenant.to_string();
        let path = ["v1", "tenants", &id];
        let call = Call::post("change the tenant", &path).method(Method::PATCH);
        self.json(call.repeatable().json(change)?).await
    }

    /// Makes a key. It is not repeated once the server may have done it: a key whose secret got lost on its way is of use
    /// to nobody, and shows in the list.
    ///
    /// # Errors
    /// The server refuses it, or does not answer.
    pub async fn create_key(&self, key: &NewKey) -> Result<CreatedKey, ClientError> {
        let call = Call::post("make the key", &["v1", "keys"]);
        self.json(call.json(key)?).await
    }

    /// Keys, oldest first, in pages of this many; those of one tenant where it is named.
    #[must_use]
    pub fn keys(&self, tenant: Option<TenantId>, page: u32) -> Pages<KeyList> {
        Pages::new(self, "list keys", &["v1", "keys"])
            .query("limit", Some(page))
            .query("tenant", tenant)
    }

    /// Revokes a key.
    ///
    /// # Errors
    /// There is no such key, or the server does not answer.
    pub async fn revoke_key(&self, key: KeyId) -> Result<Key, ClientError> {
        let id = key.to_string();
        let path = ["v1", "keys", &id];
        let call = Call::post("revoke the key", &path);
        self.json(call.method(Method::DELETE).repeatable()).await
    }
}
