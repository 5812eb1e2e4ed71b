"""Runs snippet.py as a program; the value of a last expression is shown, as an interactive interpreter shows it, and figures
of matplotlib that are open at the end are saved."""

import __future__
import ast
import os
import sys
import types
import warnings

PROGRAM = "/work/snippet.py"


def run():
    with open(PROGRAM, "rb") as file:
        text = file.read()
    sys.argv = [PROGRAM]
    # What pickle, dataclasses and multiprocessing look for by this name is the program, and not this file.
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    module.__file__ = PROGRAM
    tree = compile(text, PROGRAM, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    code = compile(tree, PROGRAM, "exec", dont_inherit=True)
    exec(code, vars(module))
    if last is not None:
        futures = 0
        for name in __future__.all_feature_names:
            futures |= code.co_flags & getattr(__future__, name).compiler_flag
        code = compile(ast.Interactive([last]), PROGRAM, "single", futures, dont_inherit=True)
        exec(code, vars(module))


def own_frames_off(trace):
    while trace is not None and trace.tb_frame.f_code.co_filename != PROGRAM:
        trace = trace.tb_next
    return trace


def figures():
    pyplot = sys.modules.get("matplotlib.pyplot")
    for number in pyplot.get_fignums() if pyplot else ():
        try:
            pyplot.figure(number).savefig(f"/work/figure-{number}.png")
        except Exception as error:
            print(f"figure {number} could not be saved: {error!r}", file=sys.stderr)


# Nobody looks at a window here: show() of a figure does nothing, and is no reason to warn.
os.environ.setdefault("MPLBACKEND", "Agg")
warnings.filterwarnings("ignore", ".* is non-interactive, and thus cannot be shown")
try:
    run()
except SystemExit:
    raise
except BaseException as error:
    trace = own_frames_off(error.__traceback__)
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    sys.exit(1)
finally:
    figures()
