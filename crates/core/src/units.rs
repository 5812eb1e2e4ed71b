//! Quantities with their unit: sizes, CPU shares, times. A bare number is refused where a unit is needed, since
//! `--memory 256` has been taken for bytes, kilobytes and megabytes by one tool or another.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number of bytes; written with a binary unit: `64KiB`, `256MiB`, `2GiB`, or `512B`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

/// A share of CPU time in thousandths of one CPU; written `0.5`, `1`, `2.5`, or `500m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuShare(u32);

/// A length of time, in whole milliseconds; written with a unit: `500ms`, `30s`, `5m`, `1h 30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

/// Text that is not a quantity of the kind that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseUnitError {
    /// A number without a unit.
    #[error("`{text}` has no unit: write {example}")]
    NoUnit {
        /// What was given.
        text: String,
        /// The same with a unit.
        example: String,
    },
    /// Not a number, or not with a unit that is known.
    #[error("`{text}` is no {kind}: write one such as {example}")]
    Malformed {
        /// What was given.
        text: String,
        /// What was expected.
        kind: &'static str,
        /// A well-formed value.
        example: &'static str,
    },
    /// More than the type can hold.
    #[error("`{text}` is too large")]
    TooLarge {
        /// What was given.
        text: String,
    },
}

const BYTE_UNITS: [(&str, u64); 5] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

impl ByteSize {
    /// This many bytes.
    #[must_use]
    pub const fn bytes(count: u64) -> Self {
        Self(count)
    }

    /// This many KiB.
    #[must_use]
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    /// This many MiB.
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn as_bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let given = text.trim();
        let digits = given.find(|c: char| !c.is_ascii_digit()).unwrap_or(given.len());
        let (number, unit) = (&given[..digits], given[digits..].trim());
        let malformed = || ParseUnitError::Malformed {
            text: shortened(given),
            kind: "size",
            example: "`64KiB`, `256MiB` or `2GiB`",
        };
        if number.is_empty() {
            return Err(malformed());
        }
        if unit.is_empty() {
            return Err(ParseUnitError::NoUnit {
                text: shortened(given),
                example: format!("`{0}MiB` for mebibytes or `{0}B` for bytes", shortened(number)),
            });
        }
        let too_large = || ParseUnitError::TooLarge {
            text: shortened(given),
        };
        let number: u64 = number.parse().map_err(|_| too_large())?;
        let (_, factor) = BYTE_UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(malformed)?;
        number.checked_mul(*factor).map(Self).ok_or_else(too_large)
    }
}

impl fmt::Display for ByteSize {
    /// The largest unit that divides the size without a rest, so that it reads back as the same number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = BYTE_UNITS
            .iter()
            .rev()
            .find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor))
            .unwrap_or(&BYTE_UNITS[0]);
        write!(f, "{}{unit}", self.0 / factor)
    }
}

impl CpuShare {
    /// This many thousandths of one CPU.
    #[must_use]
    pub const fn millis(count: u32) -> Self {
        Self(count)
    }

    /// Thousandths of one CPU.
    #[must_use]
    pub const fn as_millis(self) -> u32 {
        self.0
    }

    /// Whole CPUs that a program may count on, at least one: for the hints that size its thread pools.
    #[must_use]
    pub const fn whole_cpus(self) -> u32 {
        if self.0 <= 1000 { 1 } else { self.0.div_ceil(1000) }
    }
}

impl FromStr for CpuShare {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let given = text.trim();
        let malformed = || ParseUnitError::Malformed {
            text: shortened(given),
            kind: "number of CPUs",
            example: "`0.5`, `2` or `500m`",
        };
        let too_large = || ParseUnitError::TooLarge {
            text: shortened(given),
        };
        let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(millis) = given.strip_suffix('m') {
            return if all_digits(millis) {
                millis.parse().map(Self).map_err(|_| too_large())
            } else {
                Err(malformed())
            };
        }
        let (whole, fraction) = given.split_once('.').unwrap_or((given, "0"));
        if !all_digits(whole) || !all_digits(fraction) || fraction.len() > 3 {
            return Err(malformed());
        }
        let whole: u32 = whole.parse().map_err(|_| too_large())?;
        let thousandths: u32 = format!("{fraction:0<3}").parse().map_err(|_| malformed())?;
        whole
            .checked_mul(1000)
            .and_then(|millis| millis.checked_add(thousandths))
            .map(Self)
            .ok_or_else(too_large)
    }
}

impl fmt::Display for CpuShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1000, self.0 % 1000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let fraction = format!("{rest:03}");
        write!(f, "{whole}.{}", fraction.trim_end_matches('0'))
    }
}

impl Span {
    /// This many milliseconds.
    #[must_use]
    pub const fn millis(count: u64) -> Self {
        Self(count)
    }

    /// This many seconds.
    #[must_use]
    pub const fn seconds(count: u64) -> Self {
        Self(count * 1000)
    }

    /// The number of milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The same as a standard duration.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl FromStr for Span {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let given = text.trim();
        if !given.is_empty() && given.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(ParseUnitError::NoUnit {
                text: shortened(given),
                example: format!("`{0}s` for seconds or `{0}m` for minutes", shortened(given)),
            });
        }
        let malformed = || ParseUnitError::Malformed {
            text: shortened(given),
            kind: "length of time",
            example: "`500ms`, `30s` or `5m`",
        };
        let duration = humantime::parse_duration(given).map_err(|_| malformed())?;
        let millis = u64::try_from(duration.as_millis()).map_err(|_| ParseUnitError::TooLarge {
            text: shortened(given),
        })?;
        // Nothing is rounded in silence: 100us would become no time at all.
        if Duration::from_millis(millis) == duration {
            Ok(Self(millis))
        } else {
            Err(malformed())
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.as_duration()).fmt(f)
    }
}

/// What a person typed, short enough for an error line.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

macro_rules! serde_as_text {
    ($($name:ident)*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl de::Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("text with a number and its unit")
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }

                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$name, E> {
                        self.visit_str(&number.to_string())
                    }

                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<$name, E> {
                        self.visit_str(&number.to_string())
                    }

                    fn visit_f64<E: de::Error>(self, number: f64) -> Result<$name, E> {
                        self.visit_str(&number.to_string())
                    }
                }
                deserializer.deserialize_any(Text)
            }
        }
    )*};
}

serde_as_text! { ByteSize CpuShare Span }

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_size_without_a_unit_is_refused_with_the_two_readings() {
        let error = "256".parse::<ByteSize>().unwrap_err().to_string();
        assert!(error.contains("`256MiB`") && error.contains("`256B`"), "{error}");
        assert!(
            serde_json::from_str::<ByteSize>("1048576")
                .unwrap_err()
                .to_string()
                .contains("no unit")
        );
        assert!("30".parse::<Span>().unwrap_err().to_string().contains("`30s`"));
        assert!(serde_json::from_str::<Span>("30").is_err());
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in [
            "", "MiB", "-1MiB", "1.5GiB", "1MB", "1mib", "0x10B", "NaN", "inf", "1e3B", "１MiB",
        ] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "1.2345",
            "NaN",
            "1e3",
            "m",
            "-5m",
            "99999999999",
            "4294968",
        ] {
            assert!(text.parse::<CpuShare>().is_err(), "{text}");
        }
        for text in [
            "",
            "-1s",
            "abc",
            "1x",
            "100us",
            "NaNs",
            "infs",
            "99999999999999999999s",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        assert!(matches!(
            "17179869184GiB".parse::<ByteSize>(),
            Err(ParseUnitError::TooLarge { .. })
        ));
    }

    #[test]
    fn cpus_take_a_plain_number_since_the_cpu_is_their_unit() {
        assert_eq!("0.25".parse(), Ok(CpuShare::millis(250)));
        assert_eq!("2".parse(), Ok(CpuShare::millis(2000)));
        assert_eq!("500m".parse(), Ok(CpuShare::millis(500)));
        assert_eq!(
            serde_json::from_str::<CpuShare>("1.5").unwrap(),
            CpuShare::millis(1500)
        );
        assert_eq!(
            [250, 1000, 1500, 2000].map(|m| CpuShare::millis(m).whole_cpus()),
            [1, 1, 2, 2]
        );
    }

    proptest! {
        #[test]
        fn a_quantity_reads_back_from_its_text(bytes: u64, millis: u32, span in 0..u64::MAX / 2) {
            prop_assert_eq!(ByteSize::bytes(bytes).to_string().parse(), Ok(ByteSize::bytes(bytes)));
            prop_assert_eq!(CpuShare::millis(millis).to_string().parse(), Ok(CpuShare::millis(millis)));
            prop_assert_eq!(Span::millis(span).to_string().parse(), Ok(Span::millis(span)));
        }

        #[test]
        fn any_text_is_taken_or_refused_without_a_panic(text: String) {
            let _: Result<ByteSize, _> = text.parse();
            let _: Result<CpuShare, _> = text.parse();
            let _: Result<Span, _> = text.parse();
        }
    }
}
