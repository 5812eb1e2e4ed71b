"""The sandbox as a tool of an agent of the OpenAI Agents SDK, over the Responses API."""

import sys

import mayfly
from agents import Agent, Runner, function_tool

tool = function_tool(mayfly.PythonTool().arun_python, name_override="run_python")
agent = Agent(name="analyst", instructions="Compute with run_python.", model="gpt-5-mini", tools=[tool])
print(Runner.run_sync(agent, sys.argv[1], max_turns=10).final_output)
