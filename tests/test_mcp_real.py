"""Every question of ``agent_questions.py``, put by the SDK's client to the server over stdio (``make test-report``)."""

from __future__ import annotations

import asyncio
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests import agent_questions as asked

pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="no MCP SDK (make test-report)")
ROOT = Path(__file__).parents[1]


async def _answers(folder: Path) -> tuple[dict[str, Any], list[Any]]:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    command = [str(ROOT / "cli.py"), "mcp", "--folder", str(folder)]
    async with stdio_client(StdioServerParameters(command=sys.executable, args=command)) as streams:
        async with ClientSession(*streams) as session:
            await session.initialize()
            tools = {tool.name: tool.input_schema for tool in (await session.list_tools()).tools}
            return tools, [await session.call_tool(each.tool, each.arguments) for each in asked.QUESTIONS]


def test_forty_questions_over_stdio(tmp_path: Path) -> None:
    tools, answers = asyncio.run(_answers(tmp_path / "own"))
    assert all(schema["additionalProperties"] is False for schema in tools.values())
    wrong = [
        (question.tool, question.arguments, answer.content[0].text[:300])
        for question, answer in zip(asked.QUESTIONS, answers, strict=True)
        if not _right(question, answer)
    ]
    assert wrong == []
    assert (tmp_path / "own" / "job" / "job.sbatch").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


def _right(question: asked.Question, answer: Any) -> bool:
    """Whether an answer holds, or a refusal names what it must; none tells of the program's insides."""
    text = answer.content[0].text
    if isinstance(question.holds, str):
        return bool(answer.is_error) and question.holds in text and "Traceback" not in text
    return not answer.is_error and question.holds(answer.structured_content)
