"""The sandbox as a tool of an agent of LangGraph."""

import sys

import mayfly
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

agent = create_agent(ChatOpenAI(model="gpt-5-mini"), tools=[mayfly.PythonTool().run_python])
result = agent.invoke({"messages": [("user", sys.argv[1])]}, {"recursion_limit": 20})
print(result["messages"][-1].content)
