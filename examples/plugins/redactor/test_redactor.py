"""Test of the redactor without a host."""

import unittest

from redactor import plugin

from capstan_sdk import ChatMessage, ModelRequest, RpcError, ToolOutput
from capstan_sdk.testing import PluginHarness

KEY = "sk-abcdefghijklmnop"


class RedactorTest(unittest.IsolatedAsyncioTestCase):
    async def test_masks_model_requests(self) -> None:
        request = ModelRequest("m", [ChatMessage("user", [{"type": "text", "text": f"my key is {KEY}."}])], system=KEY)
        async with PluginHarness(plugin) as host:
            answer = await host.call_hook("before_llm_call", request=request)
        changed = answer.value["change"]
        self.assertEqual(changed["messages"][0]["content"][0]["text"], "my key is [key].")
        self.assertEqual(changed["system"], "[key]")

    async def test_masks_tool_results_with_patterns_of_the_settings(self) -> None:
        async with PluginHarness(plugin, settings={"patterns": [r"pin \d+"]}) as host:
            masked = await host.call_hook("after_tool_call", outcome=ToolOutput(f"{KEY} pin 1234"))
            unchanged = await host.call_hook("after_tool_call", outcome=ToolOutput("12 degrees"))
        self.assertEqual(masked.value, {"content": "[key] [key]"})
        self.assertIsNone(unchanged.value)

    async def test_a_bad_pattern_fails_the_plugin(self) -> None:
        with self.assertRaisesRegex(RpcError, "unterminated"):
            async with PluginHarness(plugin, settings={"patterns": ["("]}):
                pass


if __name__ == "__main__":
    unittest.main()
