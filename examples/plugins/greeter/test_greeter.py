"""Test of the greeter without a host."""

import unittest

from greeter import plugin

from capstan_sdk.testing import PluginHarness


class GreeterTest(unittest.IsolatedAsyncioTestCase):
    async def test_greets_in_the_language_of_the_binding_and_counts(self) -> None:
        async with PluginHarness(plugin) as host:
            first = await host.run("hello", "good morning")
            second = await host.run("hello", "good morning", config={"language": "de"})
        self.assertEqual(first.text, "Hello, Ann! This is greeting 1.")
        self.assertEqual(second.text, "Guten Tag, Ann! This is greeting 2.")
        types = ["message.delta", "message.delta", "state.updated", "message.completed", "run.completed"]
        self.assertEqual(first.types, types)
        self.assertEqual(host.api.state["conversation"], {"greetings": 2})

    async def test_the_tool_by_itself(self) -> None:
        async with PluginHarness(plugin) as host:
            output = await host.call_tool("greeter.greeting", {"name": "Bob", "language": "fr"})
        self.assertEqual(output.content, "Bonjour, Bob!")

    async def test_a_refused_tool_fails_the_run(self) -> None:
        async with PluginHarness(plugin) as host:
            host.api.on("tools.call", lambda params: [{"content": "not allowed", "is_error": True}])
            run = await host.run("hello")
        self.assertEqual((run.status, run.failure_code), ("failed", "no-greeting"))


if __name__ == "__main__":
    unittest.main()
