"""The sandbox as a function of the Chat Completions API, with no framework at all."""

import json
import sys

import mayfly
import openai

tool = mayfly.PythonTool()
function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
tools = [{"type": "function", "function": function}]
messages = [{"role": "user", "content": sys.argv[1]}]
client = openai.OpenAI()

for _ in range(10):
    answer = client.chat.completions.create(model="gpt-5-mini", messages=messages, tools=tools)
    message = answer.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    if not message.tool_calls:
        print(message.content)
        break
    for call in message.tool_calls:
        result = tool.run_python(**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
