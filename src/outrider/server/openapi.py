"""The API's OpenAPI document, made of the schemas that requests are checked with."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from outrider.server.schemas import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest

_ERRORS = {
    "400": "the request cannot be honoured: error.param names the field",
    "401": "the API key is missing or unknown",
    "403": "the host is not this machine",
    "404": "the model, or the path, is not here",
    "408": "the body, or its reader, is too slow",
    "413": "the body is too large",
    "415": "the body is not JSON by its content type",
    "429": "too many requests wait; Retry-After says when to come back",
    "500": "the model could not go on",
    "503": "the server is stopping",
    "504": "the answer took too long",
}
_BODIES: tuple[type[BaseModel], ...] = (ChatRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest)
_POSTS = {
    "/v1/chat/completions": (ChatRequest, "Answer a chat, whole or as a stream of server-sent events."),
    "/v1/completions": (CompletionRequest, "Continue a text, whole or as a stream of server-sent events."),
    "/tokenize": (TokenizeRequest, "Return the token ids of a text or of a chat."),
    "/detokenize": (DetokenizeRequest, "Return the text of token ids."),
}
_GETS = {
    "/v1/models": ("application/json", "The model that is served."),
    "/health": ("application/json", "Whether requests are taken."),
    "/metrics": ("text/plain", "Prometheus metrics."),
    "/outrider/info": ("application/json", "What is loaded and how it is set up."),
    "/openapi.json": ("application/json", "This document."),
}


def document(version: str) -> dict[str, Any]:
    """Return the document."""
    template = "#/components/schemas/{model}"
    _, defined = models_json_schema([(schema, "validation") for schema in _BODIES], ref_template=template)
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    errors = {status: {"description": meaning, "content": error} for status, meaning in _ERRORS.items()}
    paths: dict[str, Any] = {}
    for path, (schema, summary) in _POSTS.items():
        content: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
        if path.startswith("/v1/"):
            content["text/event-stream"] = {"schema": {"type": "string"}}
        body = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema.__name__}"}}}
        paths[path] = {
            "post": {
                "summary": summary,
                "requestBody": {"required": True, "content": body},
                "responses": {"200": {"description": "the answer", "content": content}, **errors},
            }
        }
    for path, (kind, summary) in _GETS.items():
        responses = {"200": {"description": summary, "content": {kind: {}}}, **errors}
        paths[path] = {"get": {"summary": summary, "responses": responses}}
    fields = {"message": {"type": "string"}, "type": {"type": "string"}}
    optional = {name: {"type": ["string", "null"]} for name in ("param", "code")}
    inner = {"type": "object", "properties": {**fields, **optional}, "required": ["message", "type", "param", "code"]}
    known = {**defined["$defs"], "Error": {"type": "object", "properties": {"error": inner}, "required": ["error"]}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Outrider", "version": version},
        "paths": paths,
        "components": {"schemas": known, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }
