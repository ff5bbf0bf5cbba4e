"""The one way a script starts: arguments from a dataclass, errors as one line."""

import re
import sys

import tyro

EXPECTED_ERRORS = (ValueError, OSError, RuntimeError)


def run_command(main, arguments, argv=None):
    """Parses the command line into `arguments`, calls `main` and ends the process.

    Args:
        main: function of one `arguments` object; its docstring is not shown.
        arguments: frozen dataclass; its docstring and fields' docstrings are the `--help` text.
        argv: command line without the program's name; `None` reads `sys.argv`.

    An error that a user can mend (wrong value, missing file, full disk) is printed as one line on
    standard error and the exit code is 1; a wrong option exits with 2; anything else is a bug and
    keeps its traceback.
    """
    parsed = tyro.cli(arguments, args=argv, description=arguments.__doc__)
    try:
        main(parsed)
    except KeyboardInterrupt:
        sys.exit("error: interrupted")
    except EXPECTED_ERRORS as error:
        sys.exit("error: " + one_line(error))


def one_line(error):
    """The error's message in one line, without what Keras wraps around it.

    Example:
        >>> one_line(ValueError("Exception encountered\\n\\x1b[1mToo long.\\x1b[0m\\nArguments"))
        'Too long.'
    """
    wrapped = re.search("\x1b\\[1m(.*?)\x1b\\[0m", str(error), re.DOTALL)
    return " ".join((wrapped.group(1) if wrapped else str(error)).split())
