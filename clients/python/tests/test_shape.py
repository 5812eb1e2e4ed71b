"""That the package has what the API has, by its OpenAPI document, and that both clients are the same."""

from __future__ import annotations

import inspect
import json
import typing
from dataclasses import fields
from typing import Any

import pytest
from conftest import REPOSITORY

import mayfly
from mayfly import errors, job, spec
from mayfly._address import settle
from mayfly._asyncio import _requests

SCHEMAS: dict[str, Any] = json.loads((REPOSITORY / "docs/openapi.json").read_text())["components"]["schemas"]


def names(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


def test_a_job_spec_has_every_field_of_the_api() -> None:
    assert names(spec.JobSpec) == set(SCHEMAS["JobSpec"]["properties"]) | {"language"}
    assert names(spec.Limits) == set(SCHEMAS["LimitsAsked"]["properties"])
    assert names(spec.Retry) == set(SCHEMAS["RetryPolicy"]["properties"])
    assert names(spec.File) | {"path"} == set(SCHEMAS["InputFile"]["properties"])
    assert names(spec.Uploaded) | {"path"} == set(SCHEMAS["UploadedFile"]["properties"])
    assert names(job.Upload) == set(SCHEMAS["Upload"]["properties"])
    assert names(spec.Archive) == set(SCHEMAS["InputArchive"]["properties"])


def test_words_are_those_of_the_api() -> None:
    assert list(typing.get_args(job.State)) == SCHEMAS["State"]["enum"]
    assert set(SCHEMAS["State"]["enum"]) - set(SCHEMAS["EndState"]["enum"]) == job.ON_THE_WAY
    assert list(typing.get_args(job.CancelAnswer)) == SCHEMAS["CancelWord"]["enum"]
    assert list(typing.get_args(job.LeftOutWhy)) == SCHEMAS["LeftOutWhy"]["enum"]
    assert list(typing.get_args(job.StreamName)) == SCHEMAS["StreamName"]["enum"]
    assert list(errors.CLASSES) and set(errors.CLASSES) == set(SCHEMAS["Code"]["enum"])


def test_a_line_of_a_list_and_a_job_have_what_the_api_says_or_its_raw_form() -> None:
    line = set(SCHEMAS["JobLine"]["properties"]) - {"job"} | {"id", "raw"}
    assert names(job.JobLine) == line
    assert names(job.BatchJob) == line | {"item", "position"}
    assert names(job.Artifacts) == set(SCHEMAS["ArtifactList"]["properties"])
    assert names(job.Artifact) == set(SCHEMAS["ArtifactLine"]["properties"])
    assert names(job.LeftOut) == set(SCHEMAS["LeftOutLine"]["properties"])
    assert names(job.Batch) == set(SCHEMAS["Batch"]["properties"]) - {"batch"} | {"id"}
    assert names(job.Job) - line <= set(SCHEMAS["Job"]["properties"])


def test_both_clients_have_the_same_methods() -> None:
    def public(kind: type) -> dict[str, list[inspect.Parameter]]:
        return {
            name: list(inspect.signature(method).parameters.values())
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert public(mayfly.Mayfly) == public(mayfly.AsyncMayfly)
    made = [list(inspect.signature(kind).parameters) for kind in (mayfly.Mayfly, mayfly.AsyncMayfly)]
    assert made[0] == made[1]


def test_everything_of_the_package_is_exported_once() -> None:
    assert len(set(mayfly.__all__)) == len(mayfly.__all__)
    assert all(hasattr(mayfly, name) for name in mayfly.__all__)
    public = {name for name, thing in vars(errors).items() if inspect.isclass(thing) and thing.__module__ == "mayfly.errors"}
    assert public <= set(mayfly.__all__)


def test_items_that_are_too_much_for_one_request_go_in_several() -> None:
    large, small = spec.JobSpec(source="#" * (9 << 20)), spec.JobSpec(source="pass")
    requests = list(_requests({"a": large, "b": small, "c": large, "d": small}))
    assert [[item["item"] for item in some] for some in requests] == [["a", "b"], ["c", "d"]]
    many = list(_requests({str(number): small for number in range(2001)}))
    assert [len(some) for some in many] == [1000, 1000, 1]


def test_times_are_read_as_the_api_writes_them() -> None:
    for text, microseconds in [("", 0), (".1", 100_000), (".123456", 123_456), (".123456789", 123_456)]:
        read = job._instant(f"2026-12-01T00:24:26{text}Z")
        assert (read.microsecond, read.utcoffset()) == (microseconds, read - read)


def test_an_address_is_checked_before_a_key_goes_there() -> None:
    def server(text: str, plain: bool | None = None) -> str:
        return settle(text, "mayfly_k", None, plain, {}).server

    for text in ("http://127.0.0.1:8420", "http://localhost:8420/", "http://[::1]:8420", "https://h/mayfly/"):
        assert server(text) == text.rstrip("/")
    for text in ("http://mayfly.example.com", "http://localhost.example.com", "http://10.0.0.1", "http://[::ffff:10.0.0.1]"):
        with pytest.raises(mayfly.UsageError, match="is not this host"):
            server(text)
        assert server(text, True) == text
    for text in ("https://user:hunter2@h", "https://hunter2@", "https://h/?key=hunter2", "https://h/#hunter2"):
        with pytest.raises(mayfly.UsageError) as wrong:
            server(text)
        assert "hunter2" not in str(wrong.value)
    for text in ("mayfly.example.com", "/run/mayfly.sock", "unix:///run/m.sock", "https://h:port", "https://"):
        with pytest.raises(mayfly.UsageError, match="no address of a server"):
            server(text)


def test_what_is_missing_or_contradicts_itself_in_the_environment_is_said() -> None:
    def settled(**environment: str) -> None:
        settle(None, None, None, None, {f"MAYFLY_CLIENT__{name}": value for name, value in environment.items()})

    for environment, words in [
        ({}, "MAYFLY_CLIENT__SERVER"),
        ({"SERVER": "https://h"}, "MAYFLY_CLIENT__KEY_FILE"),
        ({"SERVER": "https://h", "KEY": "mayfly_k", "KEY_FILE": "/nowhere"}, "both set"),
        ({"SERVER": "https://h", "KEY_FILE": "/nowhere/key"}, "No such file"),
        ({"SERVER": "https://h", "KEY": "mayfly_k", "ALLOW_PLAIN_HTTP": "yes"}, "true or false"),
    ]:
        with pytest.raises(mayfly.UsageError, match=words):
            settled(**environment)
    with pytest.raises(mayfly.UsageError, match="must hold PEM"):
        mayfly.Mayfly("https://h", "mayfly_k", ca_file=__file__)
