//! What holds of every text that somebody gives as the name of an image.

use mayfly_core::image::{ImageName, ParseImageError};

/// Panics if it does not hold of this text.
pub(crate) fn check(text: &str) {
    match text.parse::<ImageName>() {
        Ok(name) => {
            let shown = name.to_string();
            assert_eq!(
                shown.parse(),
                Ok(name.clone()),
                "what was taken reads back as itself"
            );
            let json = serde_json::to_string(&name).expect("a name is text");
            assert_eq!(serde_json::from_str::<ImageName>(&json).ok(), Some(name.clone()));
            assert!(
                shown.len() <= text.len(),
                "nothing is made up but what a tag took away"
            );
            assert!(
                shown.bytes().all(|byte| byte.is_ascii_graphic()),
                "no blank, no control character and no lookalike letter in {shown:?}"
            );
            match name {
                ImageName::Catalog(name) => assert!(!name.contains(['/', ':', '@']), "{name}"),
                ImageName::Digest { repository, digest } => {
                    assert_eq!(shown, format!("{repository}@{digest}"));
                    assert!(
                        !repository.contains('@') && !repository.contains(".."),
                        "{repository}"
                    );
                    let path = repository.split_once('/').map_or(&*repository, |(_, path)| path);
                    assert!(!path.contains(':'), "a tag is left in {repository}");
                }
            }
        }
        Err(error) => {
            let (ParseImageError::Tag(quoted) | ParseImageError::Malformed(quoted)) = &error;
            assert!(quoted.len() <= text.len().max(80) + ":latest".len());
            assert!(error.to_string().len() <= 1024, "{error}");
        }
    }
}
