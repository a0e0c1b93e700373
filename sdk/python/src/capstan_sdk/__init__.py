"""Plugins for Capstan: runners, hooks, tools, channels, knowledge sources and model providers, in their own process.

from capstan_sdk import Plugin, message_completed, serve

plugin = Plugin()

@plugin.runner("hello")
async def hello(ctx):
    yield message_completed(f"hello, {ctx.text}")

if __name__ == "__main__":
    serve(plugin)
"""

from .stdio import claim_if_plugin

claim_if_plugin()  # before any code of the author prints

from . import models
from .components import AgentRunner, Channel, KnowledgeAnswer, KnowledgeQuery
from .contexts import AgentRunContext, ToolContext
from .errors import (
    CapstanError,
    ChannelStoppedError,
    ConnectionLostError,
    DeliveryError,
    EventRefusedError,
    ManifestError,
    ModelCallError,
    ModelDecodeError,
    RpcError,
    RunApiError,
    RunEndedError,
    RunFailure,
    ToolError,
)
from .hook_values import (
    HookAnswer,
    InboundMessage,
    ModelOutcome,
    ToolCallRequest,
    TurnError,
    TurnHandle,
    UserNotice,
    change_request,
    deny,
    finish_request,
    proceed,
    render_messages,
    replace_call,
    stay_silent,
)
from .manifest import Manifest
from .model_stream import ModelStream
from .models import (
    ActorRef,
    ChatMessage,
    Event,
    EventInput,
    KnowledgePassage,
    ModelEventReasoning,
    ModelEventStop,
    ModelEventText,
    ModelEventToolCall,
    ModelEventUsage,
    ModelOptions,
    ModelOutput,
    ModelRequest,
    OutboundMessage,
    RunContext,
    ToolCall,
    ToolFunction,
    ToolOutput,
    ToolSpec,
    Usage,
)
from .plugin import Plugin, RegistrationError
from .results import (
    AgentRunResult,
    action_requested,
    artifact_created,
    artifact_part,
    content_text,
    image_part,
    message_completed,
    message_delta,
    reasoning_delta,
    run_completed,
    run_failed,
    state_updated,
    text_part,
    tool_call_completed,
    tool_call_started,
)
from .run_api import AgentRunAPIProxy
from .serving import serve
from .version import SDK_VERSION as __version__

__all__ = [
    "ActorRef",
    "AgentRunAPIProxy",
    "AgentRunContext",
    "AgentRunResult",
    "AgentRunner",
    "CapstanError",
    "Channel",
    "ChannelStoppedError",
    "ChatMessage",
    "ConnectionLostError",
    "DeliveryError",
    "Event",
    "EventInput",
    "EventRefusedError",
    "HookAnswer",
    "InboundMessage",
    "KnowledgeAnswer",
    "KnowledgePassage",
    "KnowledgeQuery",
    "Manifest",
    "ManifestError",
    "ModelCallError",
    "ModelDecodeError",
    "ModelEventReasoning",
    "ModelEventStop",
    "ModelEventText",
    "ModelEventToolCall",
    "ModelEventUsage",
    "ModelOptions",
    "ModelOutcome",
    "ModelOutput",
    "ModelRequest",
    "ModelStream",
    "OutboundMessage",
    "Plugin",
    "RegistrationError",
    "RpcError",
    "RunApiError",
    "RunContext",
    "RunEndedError",
    "RunFailure",
    "ToolCall",
    "ToolCallRequest",
    "ToolContext",
    "ToolError",
    "ToolFunction",
    "ToolOutput",
    "ToolSpec",
    "TurnError",
    "TurnHandle",
    "Usage",
    "UserNotice",
    "__version__",
    "action_requested",
    "artifact_created",
    "artifact_part",
    "change_request",
    "content_text",
    "deny",
    "finish_request",
    "image_part",
    "message_completed",
    "message_delta",
    "models",
    "proceed",
    "reasoning_delta",
    "render_messages",
    "replace_call",
    "run_completed",
    "run_failed",
    "serve",
    "state_updated",
    "stay_silent",
    "text_part",
    "tool_call_completed",
    "tool_call_started",
]
