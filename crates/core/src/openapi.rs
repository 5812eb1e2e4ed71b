//! What an OpenAPI document says of the types that write themselves as text: the forms that their parsers take.

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        RefOr, Schema,
        schema::{AdditionalProperties, AnyOfBuilder, ObjectBuilder, Type},
    },
};

use crate::{
    digest::Digest,
    image::ImageName,
    job::{Blob, FileMode},
    units::{ByteSize, CpuShare, Span},
};

fn text(description: &str, pattern: Option<&str>, example: &str) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some(description))
        .pattern(pattern)
        .examples([example])
}

impl ToSchema for ByteSize {}

impl PartialSchema for ByteSize {
    fn schema() -> RefOr<Schema> {
        text(
            "A number of bytes with its unit.",
            Some(r"^\s*[0-9]+\s*([KMGT]i)?B\s*$"),
            "256MiB",
        )
        .into()
    }
}

impl ToSchema for CpuShare {}

impl PartialSchema for CpuShare {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new().schema_type(Type::Number);
        let words = text("CPUs, or thousandths of one: `500m`.", None, "0.5");
        AnyOfBuilder::new()
            .item(words)
            .item(number)
            .description(Some("A share of CPU time."))
            .into()
    }
}

impl ToSchema for Span {}

impl PartialSchema for Span {
    fn schema() -> RefOr<Schema> {
        text(
            "A length of time with its unit, in whole milliseconds.",
            None,
            "30s",
        )
        .into()
    }
}

impl ToSchema for Digest {}

impl PartialSchema for Digest {
    fn schema() -> RefOr<Schema> {
        let example = Digest::of(b"").to_string();
        text(
            "A SHA-256 digest.",
            Some("^sha256:[0-9a-f]{64}$"),
            example.as_str(),
        )
        .into()
    }
}

impl ToSchema for ImageName {}

impl PartialSchema for ImageName {
    fn schema() -> RefOr<Schema> {
        text(
            "A name of the image catalog, or `repository@sha256:…`.",
            None,
            "python",
        )
        .min_length(Some(1))
        .max_length(Some(327))
        .into()
    }
}

impl ToSchema for FileMode {}

impl PartialSchema for FileMode {
    fn schema() -> RefOr<Schema> {
        text(
            "Permission bits as octal digits, for owner, group and others.",
            Some("^0?[0-7]{3}$"),
            "0640",
        )
        .into()
    }
}

impl ToSchema for Blob {}

impl PartialSchema for Blob {
    fn schema() -> RefOr<Schema> {
        let base64 = ObjectBuilder::new()
            .property("base64", ObjectBuilder::new().schema_type(Type::String))
            .required("base64")
            .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)));
        AnyOfBuilder::new()
            .item(ObjectBuilder::new().schema_type(Type::String))
            .item(base64)
            .description(Some(
                "Bytes: as text where they are UTF-8, otherwise in base64 (RFC 4648, section 4).",
            ))
            .into()
    }
}
