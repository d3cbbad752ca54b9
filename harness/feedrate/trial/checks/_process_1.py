"""Start a script below a process 1 that waits for nobody, as in many containers; all of them go when this goes.

Run by its path: a process that has imported NumPy has threads, and may make no user namespace.
"""

import ctypes
import os
import signal
import subprocess
import sys

NEWPID, NEWUSER, PDEATHSIG = 0x20000000, 0x10000000, 1

if __name__ == "__main__":
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEWPID) and libc.unshare(NEWPID | NEWUSER):
        sys.exit("a process namespace cannot be made: " + os.strerror(ctypes.get_errno()))
    if os.fork() == 0:
        libc.prctl(PDEATHSIG, signal.SIGKILL)
        script = subprocess.Popen(sys.argv[1:])
        while True:
            signal.pause()
    os.wait()
