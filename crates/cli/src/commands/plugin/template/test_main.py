"""Test of the runner without a host: `python3 -m unittest`."""
import asyncio
import unittest

import main


class RunTest(unittest.TestCase):
    def test_a_message_is_answered_and_counted(self):
        async def api(method, **params):
            self.assertEqual(method, "state.get")
            return 4

        async def collect():
            return [result async for result in main.run({"input": {"text": "hi"}}, api)]

        results = asyncio.run(collect())
        text = "".join(result["data"]["delta"] for result in results if result["type"] == "message.delta")
        self.assertEqual(text, "Hello! That was message 5: hi")
        self.assertEqual(results[-1]["data"]["state"], {"count": 5})


if __name__ == "__main__":
    unittest.main()
