//! What is kept of a job's output, by range and in parts.

use mayfly_core::{
    digest::Digest,
    id::JobId,
    outcome::{CapturedStream, StreamCount},
};
use mayfly_store::contract::bench::success;
use mayfly_wire::job::OutputPart;
use reqwest::{Response, StatusCode, header};

use crate::ground::{Ground, Who};

/// A job that has written so much that its middle was cut.
async fn job(ground: &Ground, head: &[u8], tail: &[u8], written: u64) -> JobId {
    let message = ground.started(ground.tenant).await;
    let mut report = success();
    report.stdout = CapturedStream {
        count: StreamCount {
            bytes: written,
            digest: Digest::of(head),
            truncated: written > (head.len() + tail.len()) as u64,
        },
        head: head.to_vec(),
        tail: tail.to_vec(),
        redacted: None,
    };
    ground.finish(&message, report).await;
    message.job
}

async fn raw(ground: &Ground, job: JobId, range: Option<&str>) -> Response {
    let mut request = ground.get(Who::Viewer, &format!("/v1/jobs/{job}/output/stdout"));
    if let Some(range) = range {
        request = request.header(header::RANGE, range);
    }
    request.send().await.unwrap()
}

#[tokio::test]
async fn raw_bytes_come_as_they_were_and_no_browser_runs_them() {
    let ground = Ground::new().await;
    let head = b"<script>alert(1)</script>\xff\0";
    let job = job(&ground, head, b"tail", 1000).await;
    let answer = raw(&ground, job, None).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let headers = answer.headers().clone();
    assert_eq!(headers[header::CONTENT_TYPE], "application/octet-stream");
    assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    assert_eq!(
        headers[header::CONTENT_SECURITY_POLICY],
        "default-src 'none'; sandbox"
    );
    assert_eq!(
        headers[header::CONTENT_DISPOSITION],
        format!("attachment; filename=\"{job}.stdout\"")
    );
    assert_eq!(headers["mayfly-written-bytes"], "1000");
    assert_eq!(headers["mayfly-cut-at"], head.len().to_string().as_str());
    assert_eq!(answer.bytes().await.unwrap(), [&head[..], b"tail"].concat());
}

#[tokio::test]
async fn a_range_of_it_is_that_range() {
    let ground = Ground::new().await;
    let job = job(&ground, b"0123456789", b"", 10).await;
    for (range, part, bytes) in [
        ("bytes=0-0", "bytes 0-0/10", "0"),
        ("bytes=4-", "bytes 4-9/10", "456789"),
        ("bytes=-2", "bytes 8-9/10", "89"),
        ("bytes=0-99", "bytes 0-9/10", "0123456789"),
    ] {
        let answer = raw(&ground, job, Some(range)).await;
        assert_eq!(answer.status(), StatusCode::PARTIAL_CONTENT);
        assert_eq!(answer.headers()[header::CONTENT_RANGE], part);
        assert_eq!(answer.text().await.unwrap(), bytes);
    }
    let answer = raw(&ground, job, Some("bytes=10-")).await;
    assert_eq!(answer.status(), StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(answer.headers()[header::CONTENT_RANGE], "bytes */10");
    let all = raw(&ground, job, Some("bytes=0-1,5-6")).await;
    assert_eq!(
        (all.status(), all.headers().contains_key("mayfly-cut-at")),
        (StatusCode::OK, false)
    );
}

#[tokio::test]
async fn its_parts_make_the_whole_and_text_stays_text() {
    let ground = Ground::new().await;
    let text = "aé€😀".repeat(50);
    for head in [text.as_bytes(), &[0xff; 100], b""] {
        let job = job(&ground, head, b"", head.len() as u64).await;
        let (mut all, mut offset) = (Vec::new(), 0);
        loop {
            let path = format!("/v1/jobs/{job}/output?stream=stdout&limit=7&offset={offset}");
            let answer = ground.get(Who::Viewer, &path).send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
            let part: OutputPart = answer.json().await.unwrap();
            assert_eq!((part.offset, part.kept_bytes), (offset, head.len() as u64));
            if head == text.as_bytes() {
                assert!(matches!(part.content, mayfly_wire::bytes::Bytes::Text { .. }));
            }
            let bytes = part.content.into_bytes().unwrap();
            assert_eq!(bytes.len() as u64, part.bytes);
            all.extend(bytes);
            let Some(next) = part.next else { break };
            assert!(next > offset);
            offset = next;
        }
        assert_eq!(all, head);
    }
}

#[tokio::test]
async fn there_is_none_before_the_end_and_none_beyond_it() {
    let ground = Ground::new().await;
    let waiting = ground.submitted(ground.tenant).await;
    for path in ["output/stdout", "output?stream=stderr"] {
        let answer = ground
            .get(Who::Viewer, &format!("/v1/jobs/{waiting}/{path}"))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
    }
    let over = job(&ground, b"12", b"", 2).await;
    for (query, status) in [
        ("stream=stdout&offset=2", StatusCode::OK),
        ("stream=stdout&offset=3", StatusCode::RANGE_NOT_SATISFIABLE),
        (
            "stream=stdout&offset=18446744073709551615",
            StatusCode::RANGE_NOT_SATISFIABLE,
        ),
        ("stream=stdout&limit=0", StatusCode::BAD_REQUEST),
        ("stream=stdout&limit=1048577", StatusCode::BAD_REQUEST),
        ("stream=stdin", StatusCode::BAD_REQUEST),
        ("offset=0", StatusCode::BAD_REQUEST),
    ] {
        let answer = ground
            .get(Who::Viewer, &format!("/v1/jobs/{over}/output?{query}"))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), status, "{query}");
    }
}
