//! Every route, with its guard; and the OpenAPI document, which is made of the same.

#![expect(
    unused_qualifications,
    reason = "the macro that describes parameters writes them"
)]

mod accounts;
mod artifacts;
mod audit;
mod batches;
mod blobs;
mod fleet;
mod health;
mod jobs;
mod output;
mod secrets;
mod stream;
mod submit;
pub(crate) mod uploads;

use std::sync::Arc;

use axum::{
    Json, Router,
    http::{HeaderValue, header::CACHE_CONTROL},
    middleware::{from_fn, from_fn_with_state, map_response},
    response::{IntoResponse as _, Response},
    routing::get,
};
use mayfly_wire::{
    problem::{Code, MEDIA_TYPE, Problem},
    stream::{EndEvent, GapEvent, OutputEvent, StateEvent},
};
use utoipa::{
    OpenApi as _, ToSchema,
    openapi::{
        Content, ContentBuilder, OpenApi, Ref, RefOr, ResponseBuilder, Schema,
        extensions::Extensions,
        path::{Operation, Paths},
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};
use utoipa_axum::{
    router::{OpenApiRouter, UtoipaMethodRouter},
    routes,
};
use utoipa_swagger_ui::SwaggerUi;

use crate::{
    access::{Action, Scope},
    app::Shared,
    auth::{Guard, guard},
    envelope::{AsItIs, envelope},
    error::ApiError,
};

/// Where the OpenAPI document and the page about it are.
const BYTES: &str = "application/octet-stream";
const DOCUMENT: &str = "/v1/openapi.json";
const PAGE: &str = "/v1/docs";
/// The name that the document has for how requests show who they are by.
const SCHEME: &str = "api_key";
/// The extension of an operation that names its [`Action`].
pub const ACTION: &str = "x-mayfly-action";

#[derive(utoipa::OpenApi)]
#[openapi(info(
    title = "mayfly",
    description = "Runs untrusted code as jobs, each in a sandbox of its own. Every error is a problem document \
                   (RFC 9457) with a stable `code`; quantities have units (`256MiB`, `30s`).",
    license(name = "Apache-2.0", identifier = "Apache-2.0"),
))]
struct Document;

/// All routes, and what the document says of them.
fn documented(app: &Shared) -> OpenApiRouter<Shared> {
    use Action::{
        CancelJobs, ControlExecutors, HandleDeadLetters, ManageKeys, ManageSecrets, ManageTenants,
        ManageUploads, PinImages, ReadAuditLog, ReadExecutors, ReadFleetAudit, ReadImages, ReadJobAudit,
        ReadJobs, ReadOutput, ReadSelf, SubmitJobs,
    };
    let may = |action, methods| guarded(app, action, methods);
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(may(SubmitJobs, routes!(submit::submit)))
        .routes(may(ReadJobs, routes!(jobs::list_jobs)))
        .routes(may(SubmitJobs, routes!(submit::submit_many)))
        .routes(may(ReadJobs, routes!(jobs::show_job)))
        .routes(may(CancelJobs, routes!(jobs::cancel)))
        .routes(may(ReadOutput, routes!(output::part)))
        .routes(may(ReadOutput, routes!(output::raw)))
        .routes(may(ReadOutput, routes!(artifacts::list_artifacts)))
        .routes(may(ReadOutput, routes!(artifacts::download)))
        .routes(may(ReadOutput, routes!(stream::events)))
        .routes(may(ReadJobAudit, routes!(audit::of_job)))
        .routes(may(ReadAuditLog, routes!(audit::of_tenant)))
        .routes(may(ReadFleetAudit, routes!(audit::of_fleet)))
        .routes(may(SubmitJobs, routes!(batches::begin)))
        .routes(may(ReadJobs, routes!(batches::list)))
        .routes(may(ReadJobs, routes!(batches::show_batch)))
        .routes(may(SubmitJobs, routes!(batches::submit)))
        .routes(may(ReadOutput, routes!(batches::list_jobs)))
        .routes(may(SubmitJobs, routes!(batches::complete)))
        .routes(may(ReadImages, routes!(fleet::list_images)))
        .routes(may(PinImages, routes!(fleet::pin_image)))
        .routes(may(ReadExecutors, routes!(fleet::list_executors)))
        .routes(may(ControlExecutors, routes!(fleet::cordon)))
        .routes(may(ControlExecutors, routes!(fleet::uncordon)))
        .routes(may(ControlExecutors, routes!(fleet::drain)))
        .routes(may(HandleDeadLetters, routes!(fleet::list_letters)))
        .routes(may(HandleDeadLetters, routes!(fleet::replay)))
        .routes(may(HandleDeadLetters, routes!(fleet::discard)))
        .routes(may(ManageTenants, routes!(accounts::create_tenant)))
        .routes(may(ManageTenants, routes!(accounts::list_tenants)))
        .routes(may(ManageTenants, routes!(accounts::show_tenant)))
        .routes(may(ManageTenants, routes!(accounts::change_tenant)))
        .routes(may(ManageKeys, routes!(accounts::create_key)))
        .routes(may(ManageKeys, routes!(accounts::list_keys)))
        .routes(may(ManageKeys, routes!(accounts::revoke_key)))
        .routes(may(ManageSecrets, routes!(secrets::list_secrets)))
        .routes(may(ManageSecrets, routes!(secrets::set_secret)))
        .routes(may(ManageSecrets, routes!(secrets::remove_secret)))
        .routes(may(ManageUploads, routes!(uploads::list_uploads)))
        .routes(may(ManageUploads, routes!(uploads::show_upload)))
        .routes(may(ManageUploads, routes!(uploads::upload)))
        .routes(may(ManageUploads, routes!(uploads::remove_upload)))
        .routes(may(ReadSelf, routes!(health::whoami)))
        .routes(open(routes!(health::live)))
        .routes(open(routes!(health::ready)))
        .routes(open(routes!(health::version)))
}

/// A route that a key with a role of the table is needed for.
fn guarded(
    app: &Shared,
    action: Action,
    (schemas, mut paths, methods): UtoipaMethodRouter<Shared>,
) -> UtoipaMethodRouter<Shared> {
    let rule = action.rule();
    let roles: Vec<_> = rule.roles.iter().map(|role| format!("`{role}`")).collect();
    let whose = match rule.scope {
        Scope::Tenant => " of the tenant",
        Scope::Fleet => "",
    };
    for operation in operations(&mut paths) {
        let text = operation.description.take().unwrap_or_default();
        let text = format!("{text}\n\nFor keys with the role {}{whose}.", roles.join(", "));
        operation.description = Some(text.trim().to_owned());
        operation.security = Some(vec![SecurityRequirement::new::<_, [&str; 0], &str>(SCHEME, [])]);
        operation.extensions = Some(Extensions::builder().add(ACTION, rule.word).build());
        for code in [Code::Unauthenticated, Code::Forbidden, Code::RateLimited] {
            answers(operation, &code.status().to_string(), code.title());
        }
        answers(operation, "default", "What is wrong.");
    }
    let guarding = Guard {
        app: Arc::clone(app),
        action,
    };
    let methods = methods.route_layer(from_fn_with_state(guarding, guard));
    (schemas, paths, methods)
}

/// A route for everybody.
fn open((schemas, mut paths, methods): UtoipaMethodRouter<Shared>) -> UtoipaMethodRouter<Shared> {
    for operation in operations(&mut paths) {
        operation.security = Some(Vec::new());
        answers(operation, "default", "What is wrong.");
    }
    (schemas, paths, methods)
}

fn operations(paths: &mut Paths) -> impl Iterator<Item = &mut Operation> {
    paths.paths.values_mut().flat_map(|item| {
        [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.patch,
            &mut item.delete,
        ]
        .into_iter()
        .filter_map(Option::as_mut)
    })
}

/// Adds that an operation answers with a problem.
fn answers(operation: &mut Operation, status: &str, meaning: &str) {
    let schema = Ref::from_schema_name(Problem::name());
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let response = ResponseBuilder::new()
        .description(meaning)
        .content(MEDIA_TYPE, content)
        .build();
    operation
        .responses
        .responses
        .entry(status.to_owned())
        .or_insert_with(|| RefOr::T(response));
}

/// Adds a type, and what it is made of.
fn described<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}

/// Bytes as they are have no schema (OpenAPI 3.1, "Considerations for File Uploads"); utoipa writes a list of numbers.
fn without_schema(content: &mut RefOr<Content>) {
    if let RefOr::T(content) = content {
        content.schema = None;
    }
}

/// Takes the schema off everything that is bytes.
fn leave_bytes_alone(paths: &mut Paths) {
    for operation in operations(paths) {
        if let Some(RefOr::T(body)) = &mut operation.request_body {
            body.content.get_mut(BYTES).into_iter().for_each(without_schema);
        }
        for response in operation.responses.responses.values_mut() {
            if let RefOr::T(response) = response {
                response
                    .content
                    .get_mut(BYTES)
                    .into_iter()
                    .for_each(without_schema);
            }
        }
    }
}

/// What every problem has, how a key is shown, and that bytes are bytes.
fn complete(mut document: OpenApi) -> OpenApi {
    leave_bytes_alone(&mut document.paths);
    let components = document.components.get_or_insert_default();
    let mut schemas = Vec::new();
    // The data of a stream's events is text in it, so that nothing else refers to what it is.
    described::<Problem>(&mut schemas);
    described::<StateEvent>(&mut schemas);
    described::<OutputEvent>(&mut schemas);
    described::<GapEvent>(&mut schemas);
    described::<EndEvent>(&mut schemas);
    components.schemas.extend(schemas);
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("mayfly_…")
        .description(Some("An API key: `Authorization: Bearer mayfly_…`"))
        .build();
    components.add_security_scheme(SCHEME, SecurityScheme::Http(bearer));
    document
}

/// The OpenAPI 3.1 document.
pub(crate) fn document(app: &Shared) -> OpenApi {
    complete(documented(app).into_openapi())
}

/// The whole service, with routes of other protocols beside its own.
pub(crate) fn router(app: &Shared, beside: &[Router]) -> Router {
    let (router, document) = documented(app).split_for_parts();
    let document = complete(document);
    let served = Arc::new(document.clone());
    let page: Router<Shared> = SwaggerUi::new(PAGE)
        .config(utoipa_swagger_ui::Config::from(DOCUMENT))
        .into();
    let mut all = router;
    for route in beside {
        all = all.merge(foreign(app, route.clone()));
    }
    all.route(
        DOCUMENT,
        get(move || {
            let served = Arc::clone(&served);
            async move { Json((*served).clone()) }
        }),
    )
    // Between servers and executors, by addresses in their orders: nothing that a client has a part in.
    .route(blobs::PATH, get(blobs::fetch).put(blobs::leave))
    .merge(page.layer(from_fn(page_headers)))
    .fallback(no_such_route)
    .layer(from_fn_with_state(Arc::clone(app), envelope))
    .with_state(Arc::clone(app))
}

/// A route of another protocol, for everybody whose key is valid.
fn foreign(app: &Shared, route: Router) -> Router<Shared> {
    let guarding = Guard {
        app: Arc::clone(app),
        action: Action::ReadSelf,
    };
    let route: Router<Shared> = route.with_state(());
    // Within the guard: what that refuses is a problem as everywhere.
    route
        .layer(map_response(as_it_is))
        .route_layer(from_fn_with_state(guarding, guard))
}

async fn as_it_is(mut response: Response) -> Response {
    response.extensions_mut().insert(AsItIs);
    response
}

async fn no_such_route() -> ApiError {
    ApiError::new(Code::NoSuchRoute)
}

/// The page about the document runs its own scripts and no others, and nobody frames it.
async fn page_headers(request: axum::extract::Request, next: axum::middleware::Next) -> Response {
    let mut response = next.run(request).await.into_response();
    let headers = response.headers_mut();
    headers.insert(
        axum::http::header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'",
        ),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("max-age=3600"));
    response
}
