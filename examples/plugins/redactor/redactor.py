"""Masks keys in model requests and tool results.

The hooks are fail-closed: while the plugin does not work, calls fail, and nothing is sent unmasked. The setting
`patterns` of `[plugins.redactor]` adds regular expressions.
"""

import re
from typing import Any, Optional, Pattern

from capstan_sdk import ModelRequest, Plugin, ToolOutput, change_request, serve

KEY_PATTERN = re.compile(r"\b(?:sk-|ghp_|gho_|github_pat_|glpat-|xoxb-|xoxp-|AKIA|AIza|hf_)[A-Za-z0-9_-]{12,}")
KEY_MASK = "[key]"

plugin = Plugin()
patterns: list[Pattern[str]] = [KEY_PATTERN]


@plugin.on_start
def compile_patterns() -> None:
    """A pattern that is not valid fails the plugin, instead of letting keys pass."""
    patterns[:] = [KEY_PATTERN, *(re.compile(pattern) for pattern in plugin.settings.get("patterns", []))]


def mask(value: Any) -> Any:
    """The value with every key in its texts masked."""
    if isinstance(value, str):
        for pattern in patterns:
            value = pattern.sub(KEY_MASK, value)
        return value
    if isinstance(value, list):
        return [mask(item) for item in value]
    if isinstance(value, dict):
        return {key: mask(item) for key, item in value.items()}
    return value


@plugin.hook()
async def before_llm_call(request: ModelRequest) -> Optional[dict[str, Any]]:
    """Sends the masked request, if there was something to mask."""
    masked = ModelRequest.from_json(mask(request.to_json()))
    return None if masked == request else change_request(masked)


@plugin.hook()
async def after_tool_call(outcome: ToolOutput) -> Optional[ToolOutput]:
    """Replaces the output by the masked one, if there was something to mask."""
    masked = ToolOutput.from_json(mask(outcome.to_json()))
    return None if masked == outcome else masked


if __name__ == "__main__":
    serve(plugin)
