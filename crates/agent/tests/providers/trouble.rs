//! Providers that refuse, are busy, are away, or answer what is none.

use std::time::{Duration, Instant};

use mayfly_agent::model::{Message, ModelClient as _, ModelError};
use mayfly_testkit::model::{ModelServer, Say, Shape};

use crate::support::{KEY, SHAPES, client, client_with, request, strict};

fn question() -> [Message; 1] {
    [Message::User("q".to_owned())]
}

#[tokio::test]
async fn a_provider_that_is_busy_is_asked_again_when_it_says() {
    for (shape, name) in SHAPES {
        let mut script = vec![
            Say::Text("at last".to_owned()),
            Say::Fail(529, "overloaded_error", "Overloaded".to_owned(), vec![]),
            Say::Fail(
                429,
                "rate_limit_error",
                "slow down".to_owned(),
                vec![("retry-after", "1".to_owned())],
            ),
        ];
        let server = ModelServer::with(strict(), move |_| script.pop().unwrap()).await;
        let begun = Instant::now();
        let reply = client(&server, shape, name)
            .next(&request(&question()))
            .await
            .unwrap();
        assert_eq!(reply.turn.text, "at last", "{name}");
        assert!(
            begun.elapsed() >= Duration::from_secs(1),
            "{name}: {:?}",
            begun.elapsed()
        );
        assert_eq!(server.asked().len(), 3);
    }
}

#[tokio::test]
async fn a_wait_past_the_patience_and_an_empty_account_are_said_at_once() {
    for (shape, name) in SHAPES {
        for (status, code, words, header, said) in [
            (
                429,
                "rate_limit_error",
                "slow down",
                Some(("retry-after", "3600")),
                "how often it may ask",
            ),
            (
                429,
                "insufficient_quota",
                "You exceeded your current quota",
                None,
                "out of credit",
            ),
            (402, "billing_error", "pay first", None, "out of credit"),
            (
                500,
                "api_error",
                "oops",
                Some(("x-should-retry", "false")),
                "later it may work",
            ),
        ] {
            // Gemini's errors have no such code.
            if shape == Shape::Gemini && code == "insufficient_quota" {
                continue;
            }
            let headers = header.map(|(name, value)| (name, value.to_owned()));
            let server = ModelServer::with(strict(), move |_| {
                Say::Fail(
                    status,
                    code,
                    words.to_owned(),
                    headers.clone().into_iter().collect(),
                )
            })
            .await;
            let begun = Instant::now();
            let error = client(&server, shape, name)
                .next(&request(&question()))
                .await
                .unwrap_err()
                .to_string();
            assert!(error.contains(words) && error.contains(said), "{name}: {error}");
            assert_eq!(server.asked().len(), 1, "{name}: {error}");
            assert!(begun.elapsed() < Duration::from_secs(3), "{name}");
        }
    }
}

#[tokio::test]
async fn a_wrong_key_is_said_and_not_repeated() {
    for (shape, name) in SHAPES {
        let server = ModelServer::with(strict(), |_| Say::Nothing).await;
        let wrong = "sk-wrong-hunter2-0001";
        let error = client_with(&server, shape, name, wrong, Duration::from_secs(5))
            .next(&request(&question()))
            .await
            .unwrap_err();
        let text = format!("{error} {error:?}");
        // The server repeats what it was given, and that is no reason to do so too.
        assert!(text.contains("[key]") && !text.contains(wrong), "{text}");
        assert!(text.contains("_API_KEY"), "{text}");
    }
}

#[tokio::test]
async fn a_key_in_an_answer_does_not_get_into_the_conversation() {
    let server = ModelServer::with(strict(), |_| Say::Text(format!("your key is {KEY}"))).await;
    let reply = client(&server, Shape::OpenAi, "openai/x")
        .next(&request(&question()))
        .await
        .unwrap();
    assert_eq!(reply.turn.text, "your key is [key]");
}

#[tokio::test]
async fn an_answer_that_is_none_or_never_ends_is_an_error_that_says_so() {
    for (shape, name) in SHAPES {
        for (body, said) in [
            ("<html>welcome</html>", "no JSON"),
            ("{}", "it has no"),
            ("[]", "it has no"),
            ("{\"choices\": [{}], \"content\": 1, \"candidates\": 1}", "has no"),
        ] {
            let server = ModelServer::with(strict(), |_| Say::Raw(200, body.to_owned())).await;
            let error = client(&server, shape, name)
                .next(&request(&question()))
                .await
                .unwrap_err();
            assert!(
                matches!(error, ModelError::Unreadable { .. }),
                "{name}: {error:?}"
            );
            let error = error.to_string();
            assert!(
                error.contains(said) && error.contains("is its address"),
                "{name}: {error}"
            );
        }
        let server = ModelServer::with(strict(), |_| Say::Stall).await;
        let hasty = client_with(&server, shape, name, KEY, Duration::from_millis(300));
        let error = hasty.next(&request(&question())).await.unwrap_err();
        assert!(matches!(error, ModelError::TimedOut { .. }), "{name}: {error:?}");
        let server = ModelServer::with(strict(), |_| Say::Raw(200, " ".repeat(17 << 20))).await;
        let error = client(&server, shape, name)
            .next(&request(&question()))
            .await
            .unwrap_err();
        assert!(matches!(error, ModelError::TooLarge { .. }), "{name}: {error:?}");
    }
}

#[tokio::test]
async fn trouble_in_an_answer_of_success_is_trouble() {
    let error = r#"{"error": {"code": 402, "message": "no credits"}, "user_id": "u"}"#;
    let server = ModelServer::with(strict(), |_| Say::Raw(200, error.to_owned())).await;
    let error = client(&server, Shape::OpenAi, "openai/x")
        .next(&request(&question()))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("out of credit"), "{error}");
}

#[tokio::test]
async fn a_redirect_is_not_followed_with_question_and_key() {
    for (shape, name) in SHAPES {
        let other = ModelServer::start(|_| Say::Text("got it".to_owned())).await;
        let to = other.base(shape);
        let server = ModelServer::with(strict(), move |_| {
            let path = match shape {
                Shape::Anthropic => "v1/messages",
                Shape::OpenAi => "chat/completions",
                Shape::Gemini => "models/gemini-3-flash:generateContent",
            };
            let headers = vec![("location", format!("{to}/{path}"))];
            Say::Fail(307, "moved", "there".to_owned(), headers)
        })
        .await;
        let error = client(&server, shape, name)
            .next(&request(&question()))
            .await
            .unwrap_err();
        assert!(matches!(error, ModelError::Refused(_)), "{name}: {error:?}");
        assert!(other.asked().is_empty(), "{name}");
    }
}

#[tokio::test]
async fn nobody_there_is_said_with_the_address() {
    let server = ModelServer::start(|_| Say::Nothing).await;
    let client = client(&server, Shape::OpenAi, "openai/x");
    let address = server.base(Shape::OpenAi);
    drop(server);
    let error = client.next(&request(&question())).await.unwrap_err().to_string();
    let host = address.trim_start_matches("http://").trim_end_matches("/v1");
    assert!(
        error.contains("can't be reached at") && error.contains(host),
        "{error}"
    );
}
