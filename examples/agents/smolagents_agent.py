"""The sandbox as a tool of an agent of smolagents, which runs none of the model's code itself."""

import os
import sys

import mayfly
from smolagents import OpenAIModel, Tool, ToolCallingAgent

python = mayfly.PythonTool()


class RunPython(Tool):
    name = python.name
    description = python.description
    inputs = python.parameters["properties"]
    output_type = "string"

    def forward(self, source: str) -> str:
        return python.run_python(source)


model = OpenAIModel("gpt-5-mini", api_base=os.environ.get("OPENAI_BASE_URL"))
print(ToolCallingAgent(tools=[RunPython()], model=model, max_steps=10, verbosity_level=0).run(sys.argv[1]))
