"""A runner with a tool and state: it greets a person, and knows how often it has done so."""

import json
from typing import Annotated, AsyncIterator, Literal

from capstan_sdk import (
    AgentRunContext,
    AgentRunner,
    AgentRunResult,
    Plugin,
    RunFailure,
    ToolCall,
    ToolFunction,
    message_completed,
    message_delta,
    serve,
    state_updated,
)

GREETINGS = {"en": "Hello", "de": "Guten Tag", "fr": "Bonjour"}

plugin = Plugin()


@plugin.tool("greeter.greeting")
def greeting(name: Annotated[str, "Name of the person"], language: Literal["en", "de", "fr"] = "en") -> str:
    """A greeting for a person, in a language."""
    return f"{GREETINGS[language]}, {name}!"


@plugin.runner("hello")
class Greeter(AgentRunner):
    """Greets the sender of a message with the tool, so that agents greet in the same way."""

    async def run(self, ctx: AgentRunContext) -> AsyncIterator[AgentRunResult]:
        name = (ctx.actor and ctx.actor.name) or "stranger"
        arguments = {"name": name, "language": ctx.config.get("language", "en")}
        call = ToolCall("greeting", ToolFunction("greeter.greeting", json.dumps(arguments)))
        [output] = await ctx.api.tools.call([call])
        if output.is_error:
            raise RunFailure(f"no greeting: {output.content}", code="no-greeting")
        yield message_delta(f"{output.content}")
        # State of the conversation when the run began. Turns of a conversation do not overlap.
        count = ctx.state.get("conversation", {}).get("greetings", 0) + 1
        yield message_delta(f" This is greeting {count}.")
        # Right before the message: both are one commit, so that a crash counts nothing twice.
        yield state_updated({"greetings": count})
        yield message_completed(f"{output.content} This is greeting {count}.")


if __name__ == "__main__":
    serve(plugin)
