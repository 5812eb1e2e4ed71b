//! What a server's no, or its absence, ends a command with.

use mayfly_client::ClientError;
use mayfly_wire::problem::Code;

use crate::{exit, failure::Failure};

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let code = code(&error);
        Self::new(code, error)
    }
}

fn code(error: &ClientError) -> u8 {
    match error {
        ClientError::Address(_) | ClientError::Certificate(_) => exit::USAGE,
        ClientError::Build(_) | ClientError::Request { .. } => exit::INTERNAL,
        ClientError::Unreachable { .. } | ClientError::TimedOut { .. } | ClientError::Cut { .. } => {
            exit::NO_ENGINE
        }
        ClientError::TooLarge { .. } | ClientError::Unreadable { .. } | ClientError::NotTheApi { .. } => {
            exit::PROTOCOL
        }
        ClientError::Refused(refusal) => refusal.code().map_or(exit::NO_ENGINE, of_problem),
    }
}

fn of_problem(code: Code) -> u8 {
    match code {
        Code::Unauthenticated | Code::Forbidden => exit::NO_PERMISSION,
        Code::NotFound | Code::Gone => exit::NOT_FOUND,
        Code::ImageNotPinned => exit::NO_IMAGE,
        Code::MalformedJson
        | Code::InvalidParameter
        | Code::IdempotencyConflict
        | Code::Conflict
        | Code::BodyTooLarge
        | Code::UnsupportedMediaType
        | Code::RangeNotSatisfiable
        | Code::InvalidBody
        | Code::InvalidJob => exit::USAGE,
        Code::RateLimited | Code::OverQuota => exit::IN_USE,
        Code::RequestTimeout | Code::Unavailable | Code::Overloaded => exit::NO_ENGINE,
        Code::NoSuchRoute | Code::MethodNotAllowed | Code::NotSupported => exit::PROTOCOL,
        Code::Internal | Code::Unknown => exit::INTERNAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_a_problem_ends_with_a_code_that_the_table_explains() {
        for code in Code::ALL {
            let exit = of_problem(*code);
            assert!(exit != exit::OK, "{code:?}");
            assert!(exit::TABLE.iter().any(|(known, _)| *known == exit), "{code:?}");
        }
    }
}
