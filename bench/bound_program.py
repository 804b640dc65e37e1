"""`python -m bench.bound_program PID PROGRAM ...`: becomes a program that does not outlive the process PID."""

import os
import sys

from command.pair.bound_child import end_with_parent

if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
