"""The sandbox as a tool of an agent of Pydantic AI."""

import sys

import mayfly
from pydantic_ai import Agent, Tool, UsageLimits

tool = Tool(mayfly.PythonTool().arun_python, name="run_python")
agent = Agent("openai-chat:gpt-5-mini", tools=[tool])
print(agent.run_sync(sys.argv[1], usage_limits=UsageLimits(request_limit=10)).output)
