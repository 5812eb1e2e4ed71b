//! The OpenAPI document and what is said of roles in the docs: what is committed is what is served.

use std::path::{Path, PathBuf};

use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::ground::Ground;

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name)
}

/// `MAYFLY_TEST_WRITE_DOCS=1` writes it anew.
#[tokio::test]
async fn the_committed_document_is_the_one_that_is_served() {
    let ground = Ground::new().await;
    let served = ground.open(Method::GET, "/v1/openapi.json").send().await.unwrap();
    let document: Value = served.json().await.unwrap();
    let text = format!("{}\n", serde_json::to_string_pretty(&document).unwrap());
    let path = docs("openapi.json");
    if std::env::var_os("MAYFLY_TEST_WRITE_DOCS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(
        committed == text,
        "docs/openapi.json is not current: `MAYFLY_TEST_WRITE_DOCS=1 cargo nextest run -p mayfly-api document` writes it"
    );
    assert_eq!(document["openapi"], "3.1.0");
    // Whatever is referred to is there.
    let mut rest = text.as_str();
    while let Some(at) = rest.find("\"#/components/") {
        rest = &rest[at + 2..];
        let pointer = &rest[..rest.find('"').unwrap()];
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
}

#[test]
fn the_docs_have_the_table_that_the_server_goes_by() {
    let page = std::fs::read_to_string(docs("api.md")).unwrap();
    let table = mayfly_api::access::table();
    assert!(
        page.contains(&table),
        "docs/api.md has another table of roles:\n{table}"
    );
    for code in mayfly_wire::problem::Code::ALL {
        let row = format!("| `{}` | {} |", code.as_str(), code.status());
        assert!(page.contains(&row), "docs/api.md misses {row}");
    }
}

#[tokio::test]
async fn the_page_about_it_comes_from_here_alone() {
    let ground = Ground::new().await;
    let page = ground.open(Method::GET, "/v1/docs/").send().await.unwrap();
    assert_eq!(page.status(), StatusCode::OK);
    assert!(
        page.headers()["content-security-policy"]
            .to_str()
            .unwrap()
            .contains("default-src 'self'")
    );
    let text = page.text().await.unwrap();
    assert!(
        !text.contains("src=\"http") && !text.contains("href=\"http"),
        "{text}"
    );
}
