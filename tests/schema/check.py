#!/usr/bin/env python3
"""Checks request bodies against the types of the vendors' official Python SDKs, strictly: no field that they do not know.

usage: check.py BASH-AGENT [SESSION...]      (default: the sessions of tests/fixtures, and one with every kind of block)

Needs the packages `anthropic`, `openai` and `pydantic`; refreshing the schema = installing their newest versions:

    python3 -m venv DIR && DIR/bin/pip install -U anthropic openai pydantic
    DIR/bin/python tests/schema/check.py target/release/bash-agent

The bodies of the awk programs are the binary's, byte for byte (tests/differential), so that only these are looked at.
Ends with 1 when a body does not fit; names the place.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import anthropic
import openai
import pydantic
from anthropic.types import message_create_params as claude
from openai.types.chat import completion_create_params as chat
from openai.types.responses import response_create_params as responses

REQUESTS = {
    "claude": (claude.MessageCreateParamsBase, ["claude-sonnet-5-5", "claude-haiku-4-5", "claude-opus-5-5"]),
    "openai": (chat.CompletionCreateParamsBase, ["gpt-6-sol"]),
    "responses": (responses.ResponseCreateParamsBase, ["gpt-6-sol"]),
}

# What we send although the types do not know it, and why.
KNOWN = {
    "openai": ["reasoning_content"],  # DeepSeek wants it back within a tool loop (PROVIDERS.md); never sent to OpenAI's models, which give none
}

EVERY_BLOCK = [
    {"role": "user", "content": "look at [Image #1] please"},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln", "id": "rs_1"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "text", "text": "I run it."},
        {"type": "tool_use", "id": "call_1", "name": "Bash", "input": {"command": "ls"}},
        {"type": "tool_use", "id": "call_2", "name": "PlanClear", "input": {}}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "call_1", "content": "x"},
        {"type": "tool_result", "tool_use_id": "call_2", "content": "Error: no", "is_error": True},
        {"type": "text", "text": "and be quick"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
    {"role": "user", "content": "thanks"},
]


class UnknownField(Exception):
    """A field that no type knows."""


def walk(value):
    """Validators of iterables are lazy: everything is looked at."""
    if isinstance(value, dict):
        for member in value.values():
            walk(member)
    elif isinstance(value, pydantic.BaseModel):
        # A type of the vendor's answers, which may be sent back: it takes any field, and tells which it did not know.
        if value.model_extra:
            raise UnknownField(f"{type(value).__name__} has no {', '.join(value.model_extra)}")
    elif isinstance(value, list) or type(value).__name__ == "ValidatorIterator":
        for element in value:
            walk(element)


def forbid_others():
    """Makes every TypedDict of the SDKs refuse what it does not name."""
    for module in list(sys.modules.values()):
        if not getattr(module, "__name__", "").startswith(("anthropic.types", "openai.types")):
            continue
        for item in vars(module).values():
            # A tool's schema is free.
            if hasattr(item, "__required_keys__") and "InputSchema" not in item.__name__:
                item.__pydantic_config__ = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True)


def without(value, names):
    if isinstance(value, dict):
        return {key: without(member, names) for key, member in value.items() if key not in names}
    return [without(element, names) for element in value] if isinstance(value, list) else value


def without_thinking_id(value):
    if isinstance(value, dict):
        thinks = value.get("type") == "thinking"
        return {key: without_thinking_id(member) for key, member in value.items() if not (thinks and key == "id")}
    return [without_thinking_id(element) for element in value] if isinstance(value, list) else value


def check(agent, session, provider, model, adapter, thinking):
    with tempfile.TemporaryDirectory() as home:
        command = [agent, "core", "body", session, "-p", provider, "-m", model, "--thinking", thinking]
        environment = {"HOME": home, "PATH": os.environ["PATH"]}
        body = json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)
    body = without(body, KNOWN.get(provider, []))
    # `stream` is a type of its own in the SDKs.
    assert body.pop("stream") is True
    try:
        walk(adapter.validate_python(body))
        return []
    except UnknownField as error:
        return [f"  {error}"]
    except pydantic.ValidationError as error:
        return [f"  {'.'.join(map(str, one['loc']))}: {one['msg']} ({str(one['input'])[:60]})" for one in error.errors()[:12]]


def main():
    agent = os.path.abspath(sys.argv[1])
    root = pathlib.Path(__file__).resolve().parents[1]
    forbid_others()
    failed = total = 0
    with tempfile.TemporaryDirectory() as every:
        os.mkdir(f"{every}/images")
        pathlib.Path(every, "images/1.png").write_bytes(b"\x89PNG\r\n\x1a\nx")
        sessions = sys.argv[2:] or [every, *sorted(str(p.parent) for p in root.glob("fixtures/upstream-sessions/*/conversation.jsonl"))]
        for provider, (request, models) in REQUESTS.items():
            # Only a thinking block of Responses has an id; another provider never gets it (session.json, thinking_from).
            lines = EVERY_BLOCK if provider == "responses" else without_thinking_id(EVERY_BLOCK)
            text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
            pathlib.Path(every, "conversation.jsonl").write_text(text)
            adapter = pydantic.TypeAdapter(request)
            for model in models:
                for thinking in ("adaptive", "enabled", "disabled"):
                    for session in sessions:
                        total += 1
                        problems = check(agent, session, provider, model, adapter, thinking)
                        if problems:
                            failed += 1
                            print(f"{provider} {model} --thinking {thinking} {session}", *problems, sep="\n")
    print(f"anthropic {anthropic.__version__}, openai {openai.__version__}")
    print(f"{total - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
